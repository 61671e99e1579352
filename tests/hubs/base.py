"""What both hubs share: the folder, its commits, ranges, who may read, and the faults."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import parse_qs, unquote, urlsplit

Kind = Literal["status", "cut", "reset", "short", "corrupt", "slow"]


@dataclass
class Fault:
    """What goes wrong, and how often."""

    kind: Kind
    """
    status: answer with `status` and `headers` instead of what was asked for;
    cut: promise the whole body, send `at` bytes of it and close the connection in order;
    reset: the same, with a TCP reset;
    short: the file has only `at` bytes on this server, whatever the listing says;
    corrupt: every bit of the body is turned over, the length is right;
    slow: wait `pause` seconds before every 1024 bytes.
    """
    times: int
    """Requests that it still hits; a negative number for all."""
    at: int = 0
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    pause: float = 0.0


@dataclass(frozen=True)
class Asked:
    """One request and what became of it."""

    method: str
    path: str
    """Decoded, without the query."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    status: int
    file: str
    """The data set's file whose bytes were sent, else empty."""


class Hub:
    """`with ModelScopeHub(root) as hub:` serves on a free port of this machine until the end."""

    handler: type[Handler]

    def __init__(self, root: Path, *, port: int = 0) -> None:
        self.root = root
        self.asked: list[Asked] = []
        self.token: str | None = None
        """Who does not send it is refused what is gated; None gates nothing."""
        self.gate: Literal["files", "all"] = "files"
        """Whether the gate stands before the files' bytes only, or before all."""
        self._faults: dict[str, list[Fault]] = {}
        self._lock = threading.Lock()
        self._http = _Http(("127.0.0.1", port), partial(self.handler, self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def fault(self, path: str, kind: Kind, *, times: int = 1, **more: Any) -> None:
        """Order a fault for a file of the data set, or for an API request by its last part.

        Those are `tree` (the listing), `info` and `revisions`.
        """
        with self._lock:
            self._faults.setdefault(path, []).append(Fault(kind, times, **more))

    def forget(self) -> None:
        """No faults, no gate, nothing asked."""
        with self._lock:
            self.asked.clear()
            self._faults.clear()
        self.token, self.gate = None, "files"

    def files_sent(self) -> list[str]:
        """The files of the data set whose bytes were sent (not only looked up), sorted."""
        with self._lock:
            return sorted(ask.file for ask in self.asked if ask.file and ask.method == "GET")

    def note(self, asked: Asked) -> None:
        with self._lock:
            self.asked.append(asked)

    def take_fault(self, path: str) -> Fault | None:
        """The fault that hits this request; it is used up."""
        with self._lock:
            for fault in self._faults.get(path, ()):
                if fault.times:
                    fault.times -= 1
                    return fault
        return None


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of the game."""


class Handler(BaseHTTPRequestHandler):
    """One request. Subclasses say in `answer` which paths there are."""

    protocol_version = "HTTP/1.1"

    def __init__(self, hub: Hub, *args: Any) -> None:
        self.hub = hub
        super().__init__(*args)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.route = unquote(parts.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.answer()

    do_HEAD = do_GET

    def answer(self) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------------------------------ refusals

    def refuse(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """An error in the hub's own form."""
        raise NotImplementedError

    def may_read(self, what: Literal["files", "all"]) -> bool:
        """False, with the refusal sent, for one who is not let in."""
        hub = self.hub
        if hub.token is None or (what == "all" and hub.gate == "files"):
            return True
        sent = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if sent == hub.token:
            return True
        self.refuse_gated(403 if sent else 401)
        return False

    def refuse_gated(self, status: int) -> None:
        self.refuse(status)

    def spoiled(self, name: str) -> bool:
        """True, with the fault's answer sent, where a fault hits an API request."""
        fault = self.hub.take_fault(name)
        if fault is None:
            return False
        assert fault.kind == "status", "API requests can only be refused"
        self.refuse(fault.status, fault.headers)
        return True

    # ------------------------------------------------------------------------------------- answers

    def send_json(
        self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        body = json.dumps(value).encode()
        self._head(status, {"Content-Type": "application/json", **(headers or {})}, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_file(self, name: str, data: bytes, headers: Mapping[str, str]) -> None:
        """The bytes of a file, or the part that was asked for, with what is ordered for it."""
        # a look-up (HEAD) tells the truth: faults are for those who take the bytes
        fault = self.hub.take_fault(name) if self.command == "GET" else None
        kind = fault.kind if fault else None
        if fault and kind == "status":
            self.refuse(fault.status, fault.headers)
            return
        if fault and kind == "short":
            data = data[: fault.at]
        start, end, status = 0, len(data), 200
        more = dict(headers)
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start = int(asked[1])
            end = min(int(asked[2]) + 1, len(data)) if asked[2] else len(data)
            status = 206 if start < len(data) else 416
            more["Content-Range"] = (
                f"bytes {start}-{end - 1}/{len(data)}" if status == 206 else f"bytes */{len(data)}"
            )
        body = data[start:end] if status != 416 else b""
        self._head(status, {"Accept-Ranges": "bytes", **more}, len(body), name)
        if self.command == "HEAD":
            return
        if kind == "corrupt":
            body = bytes(byte ^ 0xFF for byte in body)
        if fault and kind in ("cut", "reset"):
            self.wfile.write(body[: fault.at])
            self.wfile.flush()
            time.sleep(0.1)  # the client must have the bytes before it learns of the end
            self._hang_up(reset=kind == "reset")
        elif fault and kind == "slow":
            for at in range(0, len(body), 1024):
                time.sleep(fault.pause)
                self.wfile.write(body[at : at + 1024])
                self.wfile.flush()
        else:
            self.wfile.write(body)

    def send_redirect(self, to: str, headers: Mapping[str, str]) -> None:
        self._head(302, {"Location": to, **headers}, 0)

    def _head(self, status: int, headers: Mapping[str, str], length: int, file: str = "") -> None:
        asked = {name.lower(): value for name, value in self.headers.items()}
        self.hub.note(Asked(self.command, self.route, self.query, asked, status, file))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _hang_up(self, *, reset: bool) -> None:
        self.close_connection = True
        if reset:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        else:
            self.connection.shutdown(socket.SHUT_RDWR)


# ------------------------------------------------------------------------------------------ content


@dataclass(frozen=True)
class Snapshot:
    """The files of one revision."""

    folder: Path
    commit: str

    def read(self, path: str) -> bytes | None:
        """The bytes of a file; None when there is none, or when it lies elsewhere."""
        found = (self.folder / path).resolve()
        inside = found.is_relative_to(self.folder.resolve())
        return found.read_bytes() if inside and found.is_file() else None

    def listing(self, below: str = "", *, recursive: bool = True) -> list[Path] | None:
        """Files and folders, relative; None where there is no such folder."""
        base = self.folder / below
        if not base.is_dir():
            return None
        found = base.rglob("*") if recursive else base.iterdir()
        return sorted(path.relative_to(self.folder) for path in found)


def snapshot(repo: Path, revision: str) -> Snapshot | None:
    """By branch, tag or commit."""
    for folder in sorted(repo.iterdir()) if repo.is_dir() else ():
        commit = _commit(folder)
        if revision in (folder.name, commit):
            return Snapshot(folder, commit)
    return None


def _commit(folder: Path) -> str:
    """Stands for git's commit: another content has another one."""
    digest = sha1(usedforsecurity=False)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        digest.update(f"{name}\0{sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def git_blob(data: bytes) -> str:
    """The name that git gives to a file's content."""
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
