"""Verify: is every file of a store what it says it is, and is nothing missing or unused?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness import canonical, names
from harness.cassette import Effect, ModelEffect, Tape, read_cassette
from harness.collecting import named_by
from harness.errors import DamageError, HarnessError
from harness.journal import OpenTape
from harness.records import (
    BashRequest,
    ModelRequest,
    ToolRequest,
    TrajectoryHash,
    failure_digest,
    reply_digest,
)
from harness.replaying import check_sample
from harness.runfile import read_run
from harness.store import Store, object_name, sample_key
from harness.verdicts import sealed_key

Line = tuple[str, bool]
"""A line to print, and whether it is bad news."""


class WireSize:
    """How much wire evidence cassettes stand on; it is kept beside them and is no part of them."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._exchanges = 0

    def add(self, store: Store, tape: Tape) -> None:
        """Count what a tape names. DamageError when some of it is not there or not as it was."""
        names = named_by(tape.lines) - set(tape.parents())
        self._exchanges += len(names)
        for name in sorted(names):
            if name not in self._sizes:
                data = store.get(name, f"the wire evidence {name[:19]} of {tape.what}")
                self._sizes[name] = len(data)

    def __str__(self) -> str:
        if not self._sizes:
            return "no wire evidence"
        size = sum(self._sizes.values())
        return f"wire evidence: {self._exchanges} exchanges, {size / 1e6:.2f} MB"


def verify_store(store: Store, runs: Sequence[str] = ()) -> Iterator[Line]:
    """Check runs (default: all, and what no run names) file by file."""
    used: set[str] = set()
    for name in runs or store.runs():
        yield from _run(store, name, used)
    if not runs:
        yield from _names(store, used)
        yield from _rest(store, used)


def _run(store: Store, name: str, used: set[str]) -> Iterator[Line]:
    try:
        run = read_run(store, name)
    except HarnessError as error:
        yield str(error), True
        return
    if run.sealed_key is not None:
        used.add(run.sealed_key)
        try:
            sealed_key(store, run)
        except DamageError as error:
            yield str(error), True
    good, wire = 0, WireSize()
    for entry in run.samples:
        if entry.cassette is None:
            continue
        what = entry.what(name)
        try:
            tape = read_cassette(store, entry.cassette, what)
            used |= {entry.cassette, *named_by(tape.lines)}
            check_sample(tape, entry, what)
            check_tape(tape)
            wire.add(store, tape)
            good += 1
        except DamageError as error:
            used.add(entry.cassette)
            yield str(error), True
        except (RecursionError, ValueError) as error:  # no digest: nested too deep, no JSON number
            used.add(entry.cassette)
            yield f"{what} is damaged: {error}", True
    recorded = sum(entry.cassette is not None for entry in run.samples)
    yield f"{name}: {good} of {recorded} cassettes are as they were sealed", False
    yield f"{name}: {wire}", False
    keys = {sample_key(entry.task_id, entry.epoch) for entry in run.samples}
    for key in store.journals(name):
        try:
            found = OpenTape(store.read_journal(name, key) or b"", f"the journal {key} of {name!r}")
        except DamageError as error:
            yield str(error), True
            continue
        if key not in keys:  # a recorder may have added it to the run file meanwhile
            entries = read_run(store, name).samples
            keys = {sample_key(entry.task_id, entry.epoch) for entry in entries}
        if found.lines and key not in keys:
            yield f"{name}: the journal {key} belongs to no sample of the run", True
        else:
            yield f"{name}: {key} is unfinished ({found.torn} torn bytes)", False


def _names(store: Store, used: set[str]) -> Iterator[Line]:
    """What is kept under names of its own."""
    good: Counter[str] = Counter()
    for path in names.paths(store):
        try:
            found = names.read(store, path)
            used.add(found.object)
            store.get(found.object, f"the {found.kind} cassette {found.name!r}")
            good[found.kind] += 1
        except DamageError as error:
            yield str(error), True
    for kind, count in good.items():
        yield f"{count} {kind} cassettes are as they were stored", False


def _rest(store: Store, used: set[str]) -> Iterator[Line]:
    for path in store.files.listing("objects"):
        name = object_name(path)
        if name is None:
            yield f"{store.files.label(path)} has no object's name (64 lower-case hex digits)", True
            continue
        if name in used:
            continue
        try:
            store.get(name, f"the unused object {name[:19]}")
        except DamageError as error:
            yield str(error), True
        else:
            yield f"{name} is used by no run (harness gc removes it)", False


def check_tape(tape: Tape) -> None:
    """Every request digest and the trajectory digest, computed again from what the tape holds."""
    trajectory = TrajectoryHash()
    requests = dict(tape.requests())
    for index, effect in enumerate(tape.effects):
        where = f"effect {index + 1}"
        if isinstance(effect, ModelEffect):
            recorded = requests[index]
            request = ModelRequest(recorded.messages, recorded.tools, recorded.params)
            digest = request.digest(recorded.model)
        else:
            digest = _digest(effect)
        if digest != effect.digest:
            raise DamageError(f"{tape.what} is damaged: the request of {where} has another digest")
        if effect.failure is not None:
            trajectory.add(digest, failure_digest(effect.failure))
        else:
            trajectory.add(digest, reply_digest(tape.reply(effect)))
    if tape.end is None:
        raise DamageError(f"{tape.what} is damaged: its last line is missing")
    if trajectory.result(tape.end.outcome) != tape.end.trajectory:
        raise DamageError(f"{tape.what} is damaged: its trajectory digest is another")


def _digest(effect: Effect) -> str:
    request = effect.request  # type: ignore[attr-defined]
    kind = str(type(effect).__struct_config__.tag)
    if kind == "bash":
        return BashRequest(request.command, request.timeout).digest()
    if kind == "tool":
        return ToolRequest(request.server, request.name, request.arguments).digest()
    return canonical.digest({"kind": "value", "name": request.name})
