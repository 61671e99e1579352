"""The store: sealed objects that name themselves, run files, journals, locks.

    layout.json                      format and version
    runs/<run>.json                  what was run, and one line per sample and epoch
    objects/sha256/ab/<62 hex>       cassettes and other immutable objects
    journal/<run>/<sample>.jsonl     recordings in progress

The store computes every digest itself and verifies every read. Readers take no lock; a writer
holds the store shared and its run exclusively; `gc` and `rm` hold the store exclusively.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec

from harness.errors import DamageError, UsageError
from harness.files import Appender, Files, Folder, Memory

FORMAT = "gaia-harness-store"
VERSION = 1
PREFIX = "sha256:"

LAYOUT = {
    # cassettes hold benchmark questions and answers: private unless the owner adds them
    ".gitignore": b"*\n",
    ".gitattributes": b"* -text\n",
    # last: with it, the folder is a store
    "layout.json": b'{"format": "gaia-harness-store", "version": 1}\n',
}
"""The files that every store has."""
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.")


class Store:
    """A folder of runs and cassettes (or, for tests and tools, the same in memory)."""

    def __init__(self, root: str | os.PathLike[str] | Files = "cassettes") -> None:
        """Opens without touching the disk. `root`: a folder, or another kind of `Files`."""
        self.files: Files = Folder(Path(root)) if isinstance(root, str | os.PathLike) else root
        self._checked = False

    @classmethod
    def in_memory(cls) -> Store:
        """A new one that is gone with the process."""
        return cls(Memory())

    @property
    def label(self) -> str:
        """What to call it in a message."""
        return self.files.label("")

    # ----------------------------------------------------------------------------------- layout

    def check(self) -> None:
        """Refuse a folder that is no store of ours or of a version that is not known."""
        if self._checked:
            return
        try:
            layout = msgspec.json.decode(self.files.read("layout.json"))
        except FileNotFoundError:
            raise UsageError(
                f"{self.label} is no store: it has no layout.json",
                hint="name one with --store DIR or HARNESS_STORE; `harness record` makes a new one",
            ) from None
        except (msgspec.DecodeError, RecursionError) as error:
            name = self.files.label("layout.json")
            raise DamageError(f"{name} cannot be read as JSON: {error}") from None
        if not isinstance(layout, dict) or layout.get("format") != FORMAT:
            raise UsageError(f"{self.label} is no store of this program")
        if layout.get("version") != VERSION:
            raise UsageError(
                f"{self.label} is a store of version {layout.get('version')!r}; "
                f"this program reads version {VERSION}"
            )
        self._checked = True

    def create(self) -> None:
        """Make the folder a store if it is not one yet; UsageError when it is something else."""
        if not self.files.exists("layout.json"):
            for name, content in LAYOUT.items():
                if self.files.exists(name) and self.files.read(name) != content:
                    raise UsageError(
                        f"{self.label} is used for something else: it has a {name} of its own",
                        hint="name a new folder with --store DIR",
                    )
                self.files.write(name, content)
        self.check()

    # ---------------------------------------------------------------------------------- objects

    def put(self, data: bytes) -> str:
        """Keep an immutable object; returns `sha256:<hex>`. Writing it again changes nothing."""
        name = PREFIX + sha256(data).hexdigest()
        path = object_path(name)
        if not self.files.exists(path) or self.files.read(path) != data:
            self.files.write(path, data)
        return name

    def get(self, name: str, what: str = "object") -> bytes:
        """An object's bytes, verified. DamageError when it is missing or not what its name says."""
        path = object_path(name)
        label = self.files.label(path)
        try:
            data = self.files.read(path)
        except FileNotFoundError:
            raise DamageError(f"{what} is missing: there is no {label}") from None
        except DamageError as error:
            raise DamageError(f"{what} is damaged: {error.message}") from None
        if sha256(data).hexdigest() != name.removeprefix(PREFIX):
            unixed = sha256(data.replace(b"\r\n", b"\n")).hexdigest()
            if unixed == name.removeprefix(PREFIX):
                raise DamageError(
                    f"{what} is damaged: the line endings of {label} were changed to CRLF",
                    hint="check it out again with `* -text` in .gitattributes, as the store ships",
                )
            raise DamageError(
                f"{what} is damaged: {label} no longer has the SHA-256 that is its name"
            )
        return data

    def has(self, name: str) -> bool:
        """Whether there is an object of that name; it may be damaged."""
        return self.files.exists(object_path(name))

    def objects(self) -> list[str]:
        """Names of all objects whose file name is one; others are `verify`'s to report."""
        found = map(object_name, self.files.listing("objects/sha256"))
        return [name for name in found if name is not None]

    def remove_object(self, name: str) -> None:
        """Remove an object: for gc, under the exclusive lock."""
        self.files.remove(object_path(name))

    # ------------------------------------------------------------------------------------- runs

    def runs(self) -> list[str]:
        """Names of the runs, sorted."""
        self.check()
        return self._run_names()

    def _run_names(self) -> list[str]:
        names = [name.removeprefix("runs/") for name in self.files.listing("runs")]
        return [name.removesuffix(".json") for name in names if _is_run_file(name)]

    def has_run(self, run: str) -> bool:
        """Whether there is a run file of that name; it may be damaged."""
        return self.files.exists(run_path(run))

    def read_run(self, run: str) -> bytes:
        """The bytes of a run file. UsageError naming the runs that exist when there is none."""
        self.check()
        try:
            return self.files.read(run_path(run))
        except FileNotFoundError:
            known = ", ".join(self.runs()) or "none"
            raise UsageError(
                f"there is no run {run!r} in {self.label} (runs: {known})", hint="harness ls"
            ) from None

    def write_run(self, run: str, data: bytes) -> None:
        """Create or replace; UsageError for a new name that is an old one in another case."""
        if not self.has_run(run):
            for name in self._run_names():
                if name.lower() == run.lower():
                    raise UsageError(
                        f"there is a run {name!r}: on some disks {run!r} is the same file",
                        hint="choose another --run",
                    )
        self.files.write(run_path(run), data)

    def remove_run(self, run: str) -> None:
        """Remove the run file and its journals; objects are gc's."""
        # the run file last: journals without one would be taken for those of a later namesake
        self.remove_journals(run)
        self.files.remove(run_path(run))

    def remove_journals(self, run: str) -> None:
        """Remove a run's unfinished recordings."""
        for name in self.files.listing(f"journal/{check_run_name(run)}"):
            if not name.endswith("/.lock"):  # or a new lock could be held beside the old one
                self.files.remove(name)

    # --------------------------------------------------------------------------------- journals

    def journals(self, run: str) -> list[str]:
        """Keys of the samples whose recording was not finished."""
        folder = f"journal/{check_run_name(run)}"
        names = [name.removeprefix(folder + "/") for name in self.files.listing(folder)]
        keys = [name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl")]
        return [key for key in keys if "/" not in key]

    def all_journals(self) -> list[tuple[str, str]]:
        """Run and key of every unfinished recording, also of runs that have no run file yet."""
        folders = {name.split("/")[1] for name in self.files.listing("journal") if "/" in name[8:]}
        runs = [run for run in sorted(folders) if _is_run_name(run)]
        return [(run, key) for run in runs for key in self.journals(run)]

    def read_journal(self, run: str, key: str) -> bytes | None:
        """A journal's bytes as they are, or None."""
        try:
            return self.files.read(journal_path(run, key))
        except FileNotFoundError:
            return None

    def open_journal(self, run: str, key: str, *, size: int | None = None) -> Appender:
        """Open for appending, cut to `size` bytes if given (a torn last line)."""
        return self.files.append(journal_path(run, key), size=size)

    def remove_journal(self, run: str, key: str) -> None:
        """Remove it if it is there."""
        self.files.remove(journal_path(run, key))

    # ------------------------------------------------------------------------------------ locks

    @contextlib.contextmanager
    def writer(self, run: str) -> Iterator[None]:
        """Write one run: other runs may be written at the same time, this one may not."""
        run_lock = f"journal/{check_run_name(run)}/.lock"
        with (
            self.files.lock("journal/.lock", exclusive=False),
            self.files.lock(run_lock, exclusive=True),
        ):
            yield

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nobody else writes: for gc and rm. What dead writers left half-written is removed."""
        with self.files.lock("journal/.lock", exclusive=True):
            self.files.sweep()
            yield


# -------------------------------------------------------------------------------------------- names


def object_path(name: str) -> str:
    """`sha256:<64 lower-case hex>` as a path in the store; DamageError for anything else."""
    hexes = name.removeprefix(PREFIX)
    if not name.startswith(PREFIX) or len(hexes) != 64 or not set(hexes) <= set("0123456789abcdef"):
        raise DamageError(f"{name[:80]!r} is no object name (sha256: and 64 lower-case hex digits)")
    return f"objects/sha256/{hexes[:2]}/{hexes[2:]}"


def object_name(path: str) -> str | None:
    """The name of the object that has this path in the store; None when no object has it."""
    name = PREFIX + path.removeprefix("objects/sha256/").replace("/", "")
    try:
        return name if object_path(name) == path else None
    except DamageError:
        return None


def check_run_name(run: str) -> str:
    """The name itself; UsageError for one that cannot be a file name everywhere."""
    if not _RUN_NAME.fullmatch(run) or run.endswith((".", ".tmp")):
        raise UsageError(
            f"{run[:120]!r} cannot name a run: letters, digits, '.', '_' and '-', at most 100, "
            "beginning with a letter or a digit"
        )
    return run


def run_path(run: str) -> str:
    """A run's file in the store; UsageError for what cannot name a run."""
    return f"runs/{check_run_name(run)}.json"


def journal_path(run: str, key: str) -> str:
    """The journal of one sample and epoch; `key` as `sample_key` makes it."""
    return f"journal/{check_run_name(run)}/{key}.jsonl"


def sample_key(task_id: str, epoch: int) -> str:
    """A file name for one sample and epoch: safe on every disk, different for different ids."""
    name = "".join(
        chr(byte) if byte in _PLAIN else f"%{byte:02x}"
        for byte in task_id.encode("utf-8", "surrogatepass")
    )
    if name.startswith("."):
        name = "%2e" + name[1:]
    if len(name) > 80:
        name = f"{name[:40]}%-{sha256(task_id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    return f"{name}@{epoch}"


def _is_run_file(name: str) -> bool:
    return name.endswith(".json") and _is_run_name(name.removesuffix(".json"))


def _is_run_name(name: str) -> bool:
    try:
        check_run_name(name)
    except UsageError:
        return False
    return True
