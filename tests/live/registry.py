"""A registry of our own that serves one image, or fails the way real ones do."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def one_layer_image(layer_tar: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Manifest and blobs of an image with that one layer."""
    layer = gzip.compress(layer_tar, compresslevel=1, mtime=0)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/bin:/usr/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer_tar)]},
            "history": [{"created_by": "tests"}],
        }
    ).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": len(config),
            "digest": _digest(config),
        },
        "layers": [
            {
                "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
                "size": len(layer),
                "digest": _digest(layer),
            }
        ],
    }
    return json.dumps(manifest).encode(), {_digest(config): config, _digest(layer): layer}


def with_file(tar: bytes, name: str, content: bytes) -> bytes:
    """The archive with one more file at its end."""
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(tar)) as old,
        tarfile.open(fileobj=out, mode="w", format=old.format) as new,
    ):
        for entry in old:
            new.addfile(entry, old.extractfile(entry) if entry.isreg() else None)
        added = tarfile.TarInfo(name)
        added.size = len(content)
        new.addfile(added, io.BytesIO(content))
    return out.getvalue()


class Registry:
    """Serves on a free port of 127.0.0.1, which engines accept without TLS."""

    def __init__(self) -> None:
        self.manifest = b""
        self.blobs: dict[str, bytes] = {}
        self.status = 200
        """What every request for a manifest gets."""
        self.error: dict[str, Any] = {}
        self.pause = 0.0
        """Seconds between two pieces of a blob."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                return

            def answer(self, status: int, body: bytes, kind: str, digest: str = "") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
                if digest:
                    self.send_header("Docker-Content-Digest", digest)
                self.end_headers()
                if self.command == "HEAD":
                    return
                for at in range(0, len(body), 1 << 19):
                    self.wfile.write(body[at : at + (1 << 19)])
                    time.sleep(registry.pause if len(body) > 10_000 else 0)

            def do_GET(self) -> None:
                name = self.path.rsplit("/", 1)[-1]
                if "/manifests/" in self.path:
                    if registry.status != 200:
                        body = json.dumps({"errors": [registry.error]}).encode()
                        self.answer(registry.status, body, "application/json")
                    else:
                        digest = _digest(registry.manifest)
                        self.answer(200, registry.manifest, MANIFEST, digest)
                elif name in registry.blobs:
                    self.answer(200, registry.blobs[name], "application/octet-stream", name)
                else:
                    self.answer(200 if name == "" else 404, b"{}", "application/json")

            do_HEAD = do_GET

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
