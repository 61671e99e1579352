"""One attempt at one sample: call the loop, say how it ended; and how loops are found."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from harness import canonical, records
from harness.answers import answer_text
from harness.errors import Interrupted, LackError, SampleError, UsageError
from harness.records import Failure, Outcome, Sample, Settings, plain
from harness.world import World
from harness.world import __file__ as world_file

Agent = Callable[[Sample, World, Settings], str | None]

BUILT_IN = "harness.agent:react"

_SEAM = {canonical.__file__, records.__file__, world_file}
"""Code of ours that a loop is in when a request cannot be made."""


def attempt(agent: Agent, sample: Sample, world: Any, settings: Settings) -> Outcome:
    """Run the loop to its end. An error of the world counts, whatever the loop made of it.

    The loop is given settings of its own, which it may change; when it is over, so is the world,
    for threads that it left behind too.

    Raises what is not this sample's alone: divergences, damage, a full disk, an interruption.
    """
    answer: str | None = None
    failure: Failure | None = None
    settings = msgspec.structs.replace(settings, params=plain(settings.params))
    try:
        given = agent(sample, world, settings)
    except (KeyboardInterrupt, Interrupted):
        raise
    except BaseException as error:  # CancelledError and the like do not mean the whole run
        failure = Failure("agent", _told(error))
    else:
        try:
            answer = answer_text(given)
        except (TypeError, ValueError, RecursionError):
            kind = type(given).__name__
            failure = Failure("agent", f"the agent returned a {kind} that is no answer")
    world.end()
    ended_by = world.ended_by
    if isinstance(ended_by, SampleError):
        return Outcome(status="error", failure=Failure(ended_by.kind, ended_by.message))
    if ended_by is not None:
        raise ended_by
    if failure is not None:
        return Outcome(status="error", failure=failure)
    return Outcome(status="ok", answer=answer)


def _told(error: BaseException) -> str:
    """The exception in one line, with the place in the agent's code that it came from."""
    place = ""
    trace = error.__traceback__.tb_next if error.__traceback__ else None  # behind `attempt` itself
    while trace is not None and trace.tb_frame.f_code.co_filename not in _SEAM:
        place = f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    try:
        text = " ".join(str(error).split())[:1000]
    except Exception:  # a user's class; its text is not worth a crash
        text = "(it has no text)"
    return f"the agent raised {type(error).__name__}: {text}{place}"


def load_callable(spec: str, what: str) -> Callable[..., Any]:
    """`module:name` as a callable; the current folder is importable. LackError when not there."""
    module_name, colon, name = spec.partition(":")
    if not colon or not module_name or not name:
        raise UsageError(f"{what} {spec!r} is not of the form MODULE:NAME")
    with _current_folder():
        try:
            module = importlib.import_module(module_name)
        except (Exception, SystemExit) as error:
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            hint = None
            if missing and f"{module_name}.".startswith(f"{missing}."):
                hint = f"run from the folder that holds {missing}, or install it"
            elif missing:
                hint = f"install {missing}, which it imports"
            raise LackError(
                f"{what} {spec!r} cannot be imported: {type(error).__name__}: {error}", hint=hint
            ) from error
    found = getattr(module, name, None)
    if not callable(found):
        raise LackError(f"{what} {spec!r}: module {module_name} has no callable {name!r}")
    return found  # type: ignore[no-any-return]


@contextlib.contextmanager
def _current_folder() -> Iterator[None]:
    sys.path.insert(0, "")
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, OSError):
            sys.path.remove("")
            # for what the module imports later; last, so that it hides nothing that we do
            if (folder := os.getcwd()) not in sys.path:
                sys.path.append(folder)


def source_digest(agent: Callable[..., Any]) -> str:
    """SHA-256 of the source file that the agent is defined in; empty when there is none."""
    module = sys.modules.get(getattr(agent, "__module__", ""), None)
    file = getattr(module, "__file__", None)
    if not file or not Path(file).is_file():
        return ""
    return "sha256:" + sha256(Path(file).read_bytes()).hexdigest()
