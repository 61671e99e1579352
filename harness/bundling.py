"""Bundles: one run with everything that it stands on, as one verified file.

A gzip-compressed tar archive of a small store: `bundle.json` (format, version, run), the store's
own `layout.json`, `.gitattributes` and `.gitignore`, the run file, the objects. The same run gives
the same bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from harness import runfile
from harness.cassette import read_cassette
from harness.collecting import needed
from harness.errors import DamageError, DataError, LackError, UsageError
from harness.files import MAX_FILE
from harness.replaying import check_sample
from harness.store import LAYOUT, PREFIX, Store, check_run_name, object_path, run_path

FORMAT = "gaia-harness-bundle"
VERSION = 1
MAX_TOTAL = 64 << 30
"""Bytes that a bundle may unpack to."""


def write_bundle(store: Store, name: str, output: str) -> tuple[int, int]:
    """Write a run's bundle; number of objects and bytes of the file. Damage stops it."""
    run = runfile.read_run(store, name)
    for entry in run.samples:
        if entry.cassette is not None:
            what = entry.what(name)
            check_sample(read_cassette(store, entry.cassette, what), entry, what)
    objects = sorted(needed(store, [name]))
    head = json.dumps({"format": FORMAT, "version": VERSION, "run": name}).encode() + b"\n"
    target = Path(output)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with (
            open(temporary, "wb") as file,
            gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=9, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            _add(archive, "bundle.json", head)
            for path, content in LAYOUT.items():
                _add(archive, path, content)
            _add(archive, run_path(name), store.read_run(name))
            for item in objects:
                _add(archive, object_path(item), store.get(item))
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise LackError(f"{output} cannot be written: {error.strerror or error}") from error
    return len(objects), target.stat().st_size


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    archive.addfile(info, io.BytesIO(data))


def read_bundle(store: Store, file: str, new_name: str | None = None) -> tuple[str, int]:
    """Take a bundle into a store; the run's name and the number of objects.

    All of it is verified before anything is written. UsageError when the store has another run of
    that name; DataError when the file is no bundle; DamageError when it is not whole.
    """
    run, objects = _verified(file)
    if new_name is not None:
        run.name = check_run_name(new_name)
    wanted = {entry.cassette for entry in run.samples if entry.cassette}
    if missing := sorted(wanted - objects):
        raise DamageError(f"{file} is not whole: {len(missing)} cassettes of its run are missing")
    data = runfile.encode(run)
    store.create()
    with store.writer(run.name):
        if store.has_run(run.name) and store.read_run(run.name) != data:
            raise UsageError(
                f"the store has another run {run.name!r}", hint=f"harness unbundle {file} --as NAME"
            )
        for path, content in _members(file):
            if path.startswith("objects/") and store.put(content) not in objects:
                raise DamageError(f"{file} changed while it was read")
        store.write_run(run.name, data)
    return run.name, len(objects)


def _verified(file: str) -> tuple[runfile.RunFile, set[str]]:
    """The run and the names of the objects, each checked against its content."""
    members = _members(file)
    first = next(members, None)
    if first is None or first[0] != "bundle.json":
        raise DataError(f"{file} is no bundle of this program")
    try:
        head = json.loads(first[1])
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise DataError(f"{file} is no bundle of this program")
    if head.get("version") != VERSION:
        raise DataError(f"{file} is a bundle of version {head.get('version')!r}, not {VERSION}")
    run: runfile.RunFile | None = None
    objects: set[str] = set()
    for path, content in members:
        if path.startswith("objects/"):
            name = PREFIX + sha256(content).hexdigest()
            if object_path(name) != path:
                raise DamageError(f"{file} is damaged: {path[:120]} is not what its name says")
            objects.add(name)
        elif path.startswith("runs/"):
            run = runfile.decode(content, f"{path[:120]} in {file}")
            runfile.check(run, f"{path[:120]} in {file}")
            if run_path(run.name) != path:
                raise DamageError(f"{file} is damaged: {path[:120]} holds run {run.name!r}")
        elif path not in LAYOUT:
            raise DataError(f"{file} holds {path[:120]!r}, which no bundle has")
    if run is None:
        raise DamageError(f"{file} is not whole: it has no run file")
    return run, objects


def _members(file: str) -> Iterator[tuple[str, bytes]]:
    """Names and contents of an archive's files, one at a time, with bounds on what is read."""
    total = 0
    try:
        with gzip.open(file) as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
            for info in archive:
                if not info.isreg():
                    raise DataError(f"{file} holds {info.name[:120]!r}, which is no plain file")
                total += info.size
                if info.size > MAX_FILE or total > MAX_TOTAL:
                    raise DataError(f"{file} unpacks to more than is read")
                content = archive.extractfile(info)
                assert content is not None
                yield info.name, content.read()
            while packed.read(1 << 16):  # to the end, where the checksum is
                pass
    except (tarfile.TarError, EOFError, zlib.error, ValueError, OSError) as error:
        raise DataError(f"{file} cannot be read as a bundle: {error}") from None
