"""The leaderboard's scorer as others published it, for comparison: never installed or committed.

`references` takes the one module that matters out of each wheel that `scripts/fetch_reference.py`
keeps in the user's cache. All that these modules import beyond the standard library is a logger
and, in one of them, names for a decorated function that is not used here: stand-ins answer those.
"""

import hashlib
import logging
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

COMMAND = "python scripts/fetch_reference.py"


class Reference(NamedTuple):
    """A wheel that holds a port of the leaderboard's scorer, and where in it."""

    requirement: str
    wheel: str
    sha256: str
    module: str


REFERENCES = {
    "evalscope": Reference(
        "evalscope==1.14.1",
        "evalscope-1.14.1-py3-none-any.whl",
        "ae4bb15908862d6ae22c9ffe2af3c11e8f446a0ea798912870178f4347ef90c4",
        "evalscope/benchmarks/gaia/scorer.py",
    ),
    "inspect_evals": Reference(
        "inspect-evals==0.10.1",
        "inspect_evals-0.10.1-py3-none-any.whl",
        "b7777f6aca6474fa5708cc7783ce086579523da3282f016d286ae17fb10f2726",
        "inspect_evals/gaia/scorer.py",
    ),
}


class ReferenceMissing(AssertionError):
    """The reference is not on this machine; the message is the command that brings it."""


class ReferenceScorer(NamedTuple):
    """One port: its verdict and its normalisers."""

    name: str
    question_scorer: Callable[[str | None, str], bool]
    number: Callable[[str], float]
    split: Callable[[str], list[str]]
    with_punctuation: Callable[[str], str]
    without_punctuation: Callable[[str], str]


def cache_folder() -> Path:
    """``gaia-harness/reference`` in ``$XDG_CACHE_HOME``, or else in ``~/.cache``."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "gaia-harness" / "reference"


def is_intact(wheel: Path, reference: Reference) -> bool:
    """Whether the file is there and is the pinned one."""
    try:
        return hashlib.sha256(wheel.read_bytes()).hexdigest() == reference.sha256
    except FileNotFoundError:
        return False


@cache
def references() -> tuple[ReferenceScorer, ...]:
    """Both ports, loaded from the pinned wheels. Raises `ReferenceMissing`."""
    return tuple(load(name) for name in REFERENCES)


def load(name: str) -> ReferenceScorer:
    """One port from its wheel in the cache folder. Raises `ReferenceMissing`."""
    reference = REFERENCES[name]
    wheel = cache_folder() / reference.wheel
    if not is_intact(wheel, reference):
        state = "damaged" if wheel.exists() else "not on this machine"
        raise ReferenceMissing(f"the reference scorer is {state}: run  {COMMAND}")
    module = _execute(reference, zipfile.ZipFile(wheel).read(reference.module))

    def verdict(answer: str | None, truth: str) -> bool:
        # The ports raise on None; the leaderboard reads it as this text.
        right: bool = module.question_scorer("None" if answer is None else answer, truth)[0]
        return right

    return ReferenceScorer(
        name,
        verdict,
        module.normalize_number_str,
        module.split_string,
        lambda text: str(module.normalize_str(text, remove_punct=False)),
        lambda text: str(module.normalize_str(text)),
    )


def _execute(reference: Reference, source: bytes) -> Any:
    module = ModuleType(f"reference_{reference.wheel.partition('-')[0]}")
    with _stand_ins():
        exec(compile(source, reference.module, "exec"), module.__dict__)
    module.__dict__["logger"] = _silent_logger()
    return module


def _silent_logger() -> logging.Logger:
    logger = logging.Logger("reference scorer")
    logger.disabled = True
    return logger


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Tiny modules under the names that the ports import, gone afterwards."""

    def decorator(*_: object, **__: object) -> Callable[[object], object]:
        return lambda function: function

    names = ("CORRECT", "INCORRECT", "Score", "Scorer", "Target", "accuracy", "stderr")
    contents: dict[str, dict[str, object]] = {
        "evalscope": {},
        "evalscope.utils": {},
        "evalscope.utils.logger": {"get_logger": _silent_logger},
        "inspect_ai": {},
        "inspect_ai.scorer": {"scorer": decorator, **dict.fromkeys(names, decorator)},
        "inspect_ai.solver": {"TaskState": object},
    }
    before = {name: sys.modules.get(name) for name in contents}
    for name, attributes in contents.items():
        stand_in = ModuleType(name)
        stand_in.__dict__.update(attributes)
        sys.modules[name] = stand_in
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
