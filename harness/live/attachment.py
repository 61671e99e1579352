"""Copies of attachments, each alone in a folder or a volume of its own."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from harness.errors import SandboxError
from harness.live.docker_client import Client

_TIME = 1_704_067_200
"""Modification time of every copy (2024-01-01 UTC), so that `ls -l` prints the same each time."""


def copy_alone(source: Path, file_name: str, folder: Path) -> None:
    """Make `folder` and put a read-only copy of `source` there as `file_name`, nothing else.

    SandboxError when the file cannot be read or the name is not a plain one.
    """
    _check(file_name)
    folder.mkdir(mode=0o755)
    target = folder / file_name
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise SandboxError(f"attachment {file_name!r} cannot be read: {error.strerror}") from error
    target.chmod(0o444)
    for path in (target, folder):
        os.utime(path, (_TIME, _TIME))


def fill_volume(
    client: Client, image: str, volume: str, labels: dict[str, str], source: Path, name: str
) -> None:
    """Make a volume that holds a copy of `source` as `name`, over the API alone.

    The engine writes into a volume only through a container; one that is never started will do.
    """
    from docker.types import Mount

    _check(name)
    client.create_volume(volume, labels=labels)
    mount = Mount("/shared_files", volume, type="volume")
    helper = client.create_container(
        image,
        entrypoint=["bash"],
        labels=labels,
        use_config_proxy=False,
        host_config=client.create_host_config(mounts=[mount], network_mode="none"),
    )["Id"]
    try:
        with tempfile.TemporaryFile() as spool:
            _write_tar(spool, source, name)
            client.put_archive(helper, "/shared_files", spool)
    finally:
        client.remove_container(helper, force=True, v=False)


def _write_tar(spool: io.BufferedRandom, source: Path, name: str) -> None:
    """A tar archive of one read-only file."""
    try:
        with source.open("rb") as file, tarfile.open(fileobj=spool, mode="w") as archive:
            entry = tarfile.TarInfo(name)
            entry.size = os.fstat(file.fileno()).st_size
            entry.mode, entry.mtime = 0o444, _TIME
            archive.addfile(entry, file)
    except OSError as error:
        raise SandboxError(f"attachment {name!r} cannot be read: {error.strerror}") from error
    spool.seek(0)


def _check(name: str) -> None:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise SandboxError(f"attachment name {name!r} is not the name of a file")
