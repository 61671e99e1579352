"""ModelScope's way: paged listings with SHA-256, one endpoint for bytes, errors in an envelope."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from tests.hubs.base import Handler, Hub, Snapshot, snapshot

_ROUTE = re.compile(r"/api/v1/datasets/([^/]+)/([^/]+)(?:/(repo|repo/tree|revisions))?")


class _ModelScope(Handler):
    """GET only: data set, revisions, listing, bytes and the client's question for a near region."""

    def answer(self) -> None:
        if self.route == "/api/v1/repos/internalAccelerationInfo":
            self._data({"InternalRegionQueryAddress": ""})
            return
        route = _ROUTE.fullmatch(self.route)
        repo = self.hub.root / route[1] / route[2] if route else None
        if route is None or repo is None or not repo.is_dir():
            self.refuse(404)
        elif route[3] is None:
            if not self.spoiled("info") and self.may_read("all"):
                self._data({"Id": 1, "Namespace": route[1], "Name": route[2], "Type": 1})
        elif route[3] == "revisions":
            if not self.spoiled("revisions") and self.may_read("all"):
                self._revisions(repo)
        else:
            self._content(repo, route[3])

    def _revisions(self, repo: Path) -> None:
        names = [{"Revision": folder.name, "CreatedAt": 0} for folder in sorted(repo.iterdir())]
        self._data({"RevisionMap": {"Branches": names, "Tags": []}})

    def _content(self, repo: Path, route: str) -> None:
        asked = self.query.get("Revision", "master")
        found = snapshot(repo, asked)
        if found and asked == found.commit and not cast(ModelScopeHub, self.hub).commits:
            found = None
        if route == "repo/tree":
            if not self.spoiled("tree") and self.may_read("all"):
                self._tree(found, asked)
            return
        path = self.query.get("FilePath", "")
        data = found.read(path) if found else None
        if data is None:
            self.refuse(404)
        elif self.may_read("files"):
            kind = {"Content-Type": "application/octet-stream"}
            self.send_file(path, data, kind | {"ETag": f'"{sha256(data).hexdigest()}"'})

    def _tree(self, found: Snapshot | None, asked: str) -> None:
        recursive = self.query.get("Recursive", "True") == "True"
        below = self.query.get("Root", "").strip("/")
        paths = found.listing(below, recursive=recursive) if found else None
        if found is None or paths is None:
            self.refuse(404)
            return
        size, page = int(self.query.get("PageSize", 200)), int(self.query.get("PageNumber", 1))
        hub = cast(ModelScopeHub, self.hub)
        commit = hub.tells or (found.commit if hub.commits else asked)
        files = [_entry(found.folder, path, commit) for path in paths[(page - 1) * size :][:size]]
        latest = {"Id": "", "ShortId": found.commit[:8] if hub.commits else ""}
        self._data({"Files": files, "TotalCount": len(paths), "LatestCommitter": latest})

    def _data(self, data: Any) -> None:
        self.send_json({"Code": 200, "Data": data, "Message": "success", "Success": True})

    def refuse(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        body = {"Code": 10010205001, "Data": None, "Message": "no", "Success": False}
        self.send_json(body, status, headers)


def _entry(folder: Path, path: Path, commit: str) -> dict[str, Any]:
    file = folder / path
    data = file.read_bytes() if file.is_file() else None
    return {
        "Name": path.name,
        "Path": path.as_posix(),
        "Type": "tree" if data is None else "blob",
        "Size": len(data or b""),
        "Sha256": "" if data is None else sha256(data).hexdigest(),
        "Revision": commit,
        "CommittedDate": 1,
        "IsLFS": False,
    }


class ModelScopeHub(Hub):
    """For `MODELSCOPE_ENDPOINT`."""

    handler = _ModelScope
    commits = True
    """Whether listings tell commits, and commits are revisions that can be asked for."""
    tells = ""
    """A commit that listings name for every file, whatever is asked for."""
