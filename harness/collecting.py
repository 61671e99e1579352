"""Garbage: objects that no run and no journal stands on, and files that writers left half-done."""

from __future__ import annotations

from collections.abc import Iterable

from harness import names
from harness.cassette import Effect, Header, Line, check_header, decode_lines
from harness.errors import DamageError
from harness.journal import OpenTape
from harness.runfile import read_run
from harness.store import Store


def unused(store: Store) -> list[str]:
    """Objects that nothing names. DamageError when a run file or a journal cannot be read:

    what it names is then not known, and nothing may be removed.
    """
    return sorted(set(store.objects()) - needed(store))


def needed(store: Store, runs: Iterable[str] | None = None) -> set[str]:
    """Every object that the runs stand on, parents included; by default all that is needed at all:
    by all runs, all journals, and what has a name of its own."""
    roots: set[str] = set()
    found: set[str] = set()
    for name in store.runs() if runs is None else runs:
        run_file = read_run(store, name)
        roots |= {entry.cassette for entry in run_file.samples if entry.cassette is not None}
        if run_file.sealed_key is not None:
            roots.add(run_file.sealed_key)
    if runs is None:
        for run, key in store.all_journals():
            tape = OpenTape(store.read_journal(run, key) or b"", f"the journal {key} of {run!r}")
            roots |= named_by(tape.lines)
        found |= {named.object for named in names.everything(store)}
    while roots:
        name = roots.pop()
        if name in found or not store.has(name):
            continue
        found.add(name)
        what = f"object {name}"
        data = store.get(name, what)
        if data.startswith(b'{"type"'):
            lines = decode_lines(data, what)
            check_header(lines, what)  # what a newer one names is not known
            roots |= named_by(lines) - found
    return found


def named_by(lines: Iterable[Line]) -> set[str]:
    """The objects that a cassette's lines name: its parent and the wire evidence."""
    found: set[str] = set()
    for line in lines:
        if isinstance(line, Header) and line.parent is not None:
            found.add(line.parent.cassette)
        elif isinstance(line, Effect) and line.meta:
            wire = line.meta.get("wire")
            if isinstance(wire, list):
                found |= {name for name in wire if isinstance(name, str)}
    return found


def collect(store: Store, *, dry_run: bool = False) -> tuple[list[str], int]:
    """Remove what is unused and what writers left behind; names of objects, bytes freed.

    Refused while another process writes. With `dry_run` nothing is removed and no lock is taken.
    """
    store.check()
    if dry_run:
        return _measure(store, unused(store))
    with store.exclusive():
        names, size = _measure(store, unused(store))
        for name in names:
            store.remove_object(name)
        store.files.sweep()
        return names, size


def _measure(store: Store, names: list[str]) -> tuple[list[str], int]:
    size = 0
    for name in names:
        try:
            size += len(store.get(name))
        except DamageError:  # damaged and unused: it goes as well
            continue
    return names, size
