"""Who made a container or a scratch folder, and whether that process is still there.

A process id alone is taken again by others; together with its start time, the boot, the PID
namespace and the host it names one process for ever.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

_PREFIX = "gaia-harness-"
_OWNER_FILE = "owner.json"


class Owner(msgspec.Struct, frozen=True):
    """One process on one machine."""

    host: str
    boot: str
    pid_namespace: str
    pid: str
    start: str

    @classmethod
    def me(cls) -> Owner:
        """The running process."""
        pid = os.getpid()
        return cls(platform.node(), _boot(), _pid_namespace(), str(pid), _start_of(pid) or "")

    def state(self) -> Literal["alive", "dead", "unknown"]:
        """`unknown` for a process of another host or PID namespace: it cannot be seen from here."""
        if self.host != platform.node():
            return "unknown"
        if self.boot != _boot():
            return "dead"
        if self.pid_namespace != _pid_namespace() or not self.pid.isdecimal():
            return "unknown"
        return "alive" if _start_of(int(self.pid)) == self.start else "dead"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return _ask("sysctl", "-n", "kern.boottime")


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_of(pid: int) -> str | None:
    """When the process began: field 22 of /proc/PID/stat, or what ps says. None: not running."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        if Path("/proc/self").exists():
            return None
        return _ask("ps", "-o", "lstart=", "-p", str(pid)) or None
    fields = stat.rpartition(")")[2].split()  # the name before may hold blanks and brackets
    return None if fields[0] in "ZX" else fields[19]


def _ask(*command: str) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=False
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def scratch_folder() -> Path:
    """A new folder for temporary files, marked with its owner. Its maker removes it."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    folder.chmod(0o711)  # a remapped or rootless engine must get through to what it mounts
    (folder / _OWNER_FILE).write_bytes(msgspec.json.encode(Owner.me()))
    return folder


def clean_scratch() -> int:
    """Remove the scratch folders whose owner is dead; how many there were."""
    removed = 0
    for marker in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_OWNER_FILE}"):
        try:
            owner = msgspec.json.decode(marker.read_bytes(), type=Owner)
            ours = marker.parent.lstat().st_uid == os.getuid()
        except (OSError, msgspec.MsgspecError):
            continue
        if ours and owner.state() == "dead":
            shutil.rmtree(marker.parent, ignore_errors=True)
            removed += 1
    return removed
