"""The two hubs' own clients behind one small face, silent, their exceptions told as ours.

Nothing here decides what a data set is; that is `harness.live.hub`. A client lists the files of one
folder at a commit and brings them into its own cache, one at a time, from any thread.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from harness.errors import LackError
from harness.live.hub_errors import SITES, Site, Unreachable, no_revision, told

COMMIT = re.compile(r"[0-9a-f]{40}")

_PAUSES = (1.0, 2.0)  # seconds before each further try, where the client makes none of its own
_CHATTY = (
    *("modelscope_hub", "huggingface_hub", "filelock", "urllib3"),
    *("httpx", "httpx2", "httpcore", "httpcore2"),
)
_T = TypeVar("_T")

Told = Callable[..., contextlib.AbstractContextManager[None]]
"""Within it, a client's exceptions become the project's own; takes the `file` that is fetched."""


class RemoteFile(msgspec.Struct, frozen=True):
    """A file as the hub lists it."""

    path: str
    size: int
    sha256: str | None = None
    git: str | None = None
    """The SHA-1 that names the content in git, where there is no SHA-256."""


class Listing(msgspec.Struct, frozen=True):
    """All files of one folder."""

    revision: str
    """The commit, or the name that was asked for where the hub tells no commit."""
    files: tuple[RemoteFile, ...]


class Client(Protocol):
    """One data set at one hub."""

    def listing(self, revision: str | None, folder: str) -> Listing:
        """The files below the folder; none when the revision exists without it.

        Raises Unreachable when the hub does not answer, LackError when it refuses or has neither
        the data set nor the revision.
        """

    def download(self, file: RemoteFile, revision: str, *, again: bool) -> Path:
        """Where the file lies in the client's cache; fetched if absent, or `again` in any case."""


@contextlib.contextmanager
def client_for(hub: str, dataset_id: str) -> Iterator[Client]:
    """The hub's client; while it is open, nothing of it reaches stdout, stderr or the log."""
    site = SITES[hub]
    opened = _modelscope if hub == "modelscope" else _hugging_face
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        try:
            client = stack.enter_context(opened(site, dataset_id))
        except ImportError:
            raise LackError(
                f"{site.label} needs the package {site.package}, which is not installed or too old",
                hint="pip install 'gaia-harness[record]'",
            ) from None
        stack.enter_context(_mute_logs())
        yield client


@contextlib.contextmanager
def _mute_logs() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _CHATTY]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


# --------------------------------------------------------------------------------------- ModelScope


@contextlib.contextmanager
def _modelscope(site: Site, dataset_id: str) -> Iterator[Client]:
    # what `modelscope` itself is a face of since 1.38, without that package's slow import
    import modelscope_hub
    from modelscope_hub import _download

    config = modelscope_hub.HubConfig(endpoint=site.endpoint())
    told_here = functools.partial(told, site, str(config.endpoint), dataset_id)
    # the client offers no way to switch its bars off; a version without this name has no bars
    bars = getattr(_download, "tqdm", None)
    if bars is not None:
        vars(_download)["tqdm"] = functools.partial(bars, disable=True)
    try:
        yield _ModelScope(dataset_id, modelscope_hub.HubApi(config), told_here)
    finally:
        if bars is not None:
            vars(_download)["tqdm"] = bars


class _ModelScope:
    """Listings name each file's SHA-256 and, mostly, the commit that it came with."""

    def __init__(self, dataset_id: str, api: Any, told_here: Told) -> None:
        self._id, self._api, self._told = dataset_id, api, told_here
        with told_here():
            self._downloader = api.downloader  # made now: threads would race to make it

    def listing(self, revision: str | None, folder: str) -> Listing:
        asked = revision or "master"
        with self._told():
            files, commit = self._files(asked, folder)
            if not files and not self._exists(asked):
                known = self._api.list_repo_revisions(self._id, "dataset")
                names = sorted(str(entry.get("Revision")) for entry in known)
                if asked not in names:
                    raise no_revision(self._id, asked, names)
            # it is the last commit that touched the folder, not that of the branch: try it
            if commit and commit != asked and self._files(commit, folder)[0] == files:
                return Listing(commit, files)
            return Listing(asked, files)

    def download(self, file: RemoteFile, revision: str, *, again: bool) -> Path:
        with self._told(file=file.path):
            path = self._downloader.download_file(
                self._id, "dataset", file.path, revision=revision, force=again
            )
        return Path(path)

    def _files(self, revision: str, folder: str) -> tuple[tuple[RemoteFile, ...], str]:
        """What lies below the folder, and the commit that the newest of it came with, if told."""
        entries = [
            entry
            for entry in self._entries(revision, recursive=True, root=folder)
            if entry.get("Type") != "tree"
        ]
        if not entries:
            return (), ""
        newest = max(entries, key=lambda entry: int(entry.get("CommittedDate") or 0))
        commit = str(newest.get("Revision"))
        files = [
            RemoteFile(str(entry["Path"]), int(entry["Size"]), entry.get("Sha256") or None)
            for entry in entries
        ]
        files.sort(key=lambda file: file.path)
        return tuple(files), commit if COMMIT.fullmatch(commit) else ""

    def _exists(self, revision: str) -> bool:
        return bool(self._entries(revision, recursive=False, root=None))

    def _entries(self, revision: str, **where: Any) -> list[dict[str, Any]]:
        """Nothing, where there is no such data set, revision or folder."""
        from modelscope_hub import NotExistError

        try:
            found: list[dict[str, Any]] = self._api.legacy.list_repo_files(
                self._id, "dataset", revision, **where
            )
        except NotExistError:
            return []
        return found


# ------------------------------------------------------------------------------------- Hugging Face


@contextlib.contextmanager
def _hugging_face(site: Site, dataset_id: str) -> Iterator[Client]:
    import huggingface_hub

    api = huggingface_hub.HfApi(endpoint=site.endpoint())
    told_here = functools.partial(told, site, str(api.endpoint), dataset_id)
    bars: Any = huggingface_hub.utils
    shown = not bars.are_progress_bars_disabled()
    bars.disable_progress_bars()
    try:
        yield _HuggingFace(dataset_id, api, told_here)
    finally:
        if shown:
            bars.enable_progress_bars()


class _HuggingFace:
    """Names resolve to commits; files are named by SHA-256 (large ones) or as git names them."""

    def __init__(self, dataset_id: str, api: Any, told_here: Told) -> None:
        self._id, self._api, self._told = dataset_id, api, told_here

    def listing(self, revision: str | None, folder: str) -> Listing:
        return self._patient(lambda: self._listing(revision, folder), file="")

    def download(self, file: RemoteFile, revision: str, *, again: bool) -> Path:
        path: str = self._patient(
            lambda: self._api.hf_hub_download(
                self._id, file.path, repo_type="dataset", revision=revision, force_download=again
            ),
            file=file.path,
        )
        return Path(path)

    def _listing(self, revision: str | None, folder: str) -> Listing:
        from huggingface_hub import errors
        from huggingface_hub.hf_api import RepoFile

        try:
            commit = str(self._api.dataset_info(self._id, revision=revision).sha)
        except errors.RevisionNotFoundError:
            raise no_revision(self._id, str(revision), []) from None
        try:
            tree = self._api.list_repo_tree(
                self._id, folder, recursive=True, revision=commit, repo_type="dataset"
            )
            files = [_file_of(entry) for entry in tree if isinstance(entry, RepoFile)]
        except errors.EntryNotFoundError:
            files = []
        return Listing(commit, tuple(sorted(files, key=lambda file: file.path)))

    def _patient(self, call: Callable[[], _T], *, file: str) -> _T:
        """This client tries again only here and there: a reset connection ends a download."""
        from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

        # how it says that it is not allowed to try, or has tried for half a minute
        final = (OfflineModeIsEnabled, LocalEntryNotFoundError, ValueError)

        for pause in (*_PAUSES, None):
            try:
                with self._told(file=file):
                    return call()
            except Unreachable as error:
                if pause is None or isinstance(error.__cause__, final):
                    raise
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")


def _file_of(entry: Any) -> RemoteFile:
    if entry.lfs is not None:
        return RemoteFile(entry.path, entry.size, sha256=entry.lfs.sha256)
    return RemoteFile(entry.path, entry.size, git=entry.blob_id)
