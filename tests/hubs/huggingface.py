"""Hugging Face's way: commits first, a tree with git and LFS names, bytes behind a redirect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.hubs.base import Handler, Hub, Snapshot, git_blob, snapshot

LFS_OVER = 10_000
"""Files of more bytes are stored apart: named by SHA-256, sent from another address."""

SIGNATURE = "signature-canary"
"""Part of the address that large files are sent from."""

_INFO = re.compile(r"/api/datasets/([^/]+)/([^/]+)(?:/revision/([^/]+))?")
_TREE = re.compile(r"/api/datasets/([^/]+)/([^/]+)/tree/([^/]+)(?:/(.*))?")
_BYTES = re.compile(r"/(lfs|datasets)/([^/]+)/([^/]+)/resolve/([^/]+)/(.+)")


class _HuggingFace(Handler):
    """GET and HEAD: information on a revision, listing, bytes."""

    def answer(self) -> None:
        if route := _INFO.fullmatch(self.route):
            if not self.spoiled("info") and self.may_read("all"):
                found = self._find(route[1], route[2], route[3] or "main")
                if found:
                    self._info(f"{route[1]}/{route[2]}", found)
        elif route := _TREE.fullmatch(self.route):
            if not self.spoiled("tree") and self.may_read("all"):
                found = self._find(route[1], route[2], route[3])
                if found:
                    self._tree(found, route[4] or "")
        elif route := _BYTES.fullmatch(self.route):
            found = self._find(route[2], route[3], route[4])
            if found and (route[1] == "lfs" or self.may_read("files")):
                self._bytes(found, route[5], direct=route[1] == "lfs")
        else:
            self.refuse(404)

    def _find(self, owner: str, name: str, revision: str) -> Snapshot | None:
        repo = self.hub.root / owner / name
        if not repo.is_dir():
            self.refuse(404, {"X-Error-Code": "RepoNotFound"})
            return None
        found = snapshot(repo, revision)
        if found is None:
            self.refuse(404, {"X-Error-Code": "RevisionNotFound"})
        return found

    def _info(self, id: str, found: Snapshot) -> None:
        files = [path for path in found.listing() or () if (found.folder / path).is_file()]
        siblings = [{"rfilename": path.as_posix()} for path in files]
        told: dict[str, Any] = {"id": id, "sha": found.commit, "siblings": siblings}
        told["gated"] = "auto" if self.hub.token else False
        self.send_json(told | {"private": False, "tags": [], "downloads": 0, "likes": 0})

    def _tree(self, found: Snapshot, below: str) -> None:
        paths = found.listing(below, recursive=self.query.get("recursive", "").lower() == "true")
        if paths is None:
            self.refuse(404, {"X-Error-Code": "EntryNotFound"})
        else:
            self.send_json([_entry(found.folder, path) for path in paths])

    def _bytes(self, found: Snapshot, path: str, *, direct: bool) -> None:
        data = found.read(path)
        if data is None:
            self.refuse(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": found.commit})
            return
        headers = {"X-Repo-Commit": found.commit}
        if direct:
            self.send_file(path, data, headers)
        elif len(data) > LFS_OVER:
            linked = {"X-Linked-Etag": f'"{sha256(data).hexdigest()}"'}
            linked["X-Linked-Size"] = str(len(data))
            apart = self.hub.url.replace("127.0.0.1", "localhost")  # another host to the client
            to = f"{apart}/lfs{quote(self.route.removeprefix('/datasets'))}"
            self.send_redirect(f"{to}?X-Amz-Signature={SIGNATURE}", headers | linked)
        else:
            self.send_file(path, data, headers | {"ETag": f'"{git_blob(data)}"'})

    def refuse(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        self.send_json({"error": "no"}, status, headers)

    def refuse_gated(self, status: int) -> None:
        self.refuse(status, {"X-Error-Code": "GatedRepo"})


def _entry(folder: Path, path: Path) -> dict[str, Any]:
    file = folder / path
    if file.is_dir():
        return {"type": "directory", "path": path.as_posix(), "oid": "0" * 40, "size": 0}
    data = file.read_bytes()
    entry = {"type": "file", "path": path.as_posix(), "oid": git_blob(data), "size": len(data)}
    if len(data) <= LFS_OVER:
        return entry
    large = {"oid": sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return entry | {"lfs": large}


class HuggingFaceHub(Hub):
    """For `HF_ENDPOINT`."""

    handler = _HuggingFace
