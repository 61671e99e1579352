"""A split of a data set from ModelScope or Hugging Face, at a pinned revision, checked.

    fetched = fetch("modelscope", progress=print)
    dataset = load(fetched.root, id=fetched.id, revision=fetched.revision)

- Only `2023/<split>/*` is fetched, by the hub's own client into that client's own cache, so what
  another program fetched at the same revision is used, and an interrupted fetch goes on.
- Every file is compared with the hub's listing: its size, and its SHA-256 or git's SHA-1. A file
  that differs, also one that was damaged in the cache, is fetched again, and refused at last.
- A branch is resolved first: one request or a few, and no download when all is there. Where the
  hub does not answer, the files of the last successful fetch are used, after comparing them with
  what they were, and that is said. A full commit that was fetched before needs no request.
- Clients read the address of another hub and a token from their own variables:
  MODELSCOPE_ENDPOINT and MODELSCOPE_API_TOKEN, HF_ENDPOINT and HF_TOKEN.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from hashlib import file_digest, sha1, sha256
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from harness.dataset import SPLITS
from harness.errors import DataError, HarnessError, LackError, UsageError
from harness.files import Folder
from harness.live.hub_clients import COMMIT, Client, Listing, RemoteFile, client_for
from harness.live.hub_errors import SITES, Unreachable
from harness.truths import cache_folder

GAIA = "gaia-benchmark/GAIA"

_WORKERS = 4  # downloads at once
_TRIES = 3  # of a file whose bytes are not those that are listed
_PERIOD = 1.0  # seconds between two lines of progress
_ID = re.compile(r"(?!\.)[\w.-]+/(?!\.)[\w.-]+", re.ASCII)
_METADATA = re.compile(r"metadata(\.level[123])?\.parquet|metadata\.jsonl")


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """Where a split lies, and which one it is."""

    root: Path
    """For `harness.dataset.load`."""
    id: str
    revision: str
    """The commit; the branch's or tag's name where the hub tells no commit."""


def fetch(
    hub: Literal["modelscope", "huggingface"],
    dataset_id: str = GAIA,
    *,
    revision: str | None = None,
    split: str = "validation",
    progress: Callable[[str], None],
) -> Fetched:
    """Fetch what is not there yet. `progress` gets plain lines, from the calling thread only.

    `revision` is a branch, a tag or a full commit; by default the hub's main branch. Raises
    LackError (data set or revision not there, gated, network, wrong bytes, package), DataError when
    the data set has nothing of the split, UsageError for a malformed argument.
    """
    if hub not in SITES:
        raise UsageError(f"no hub {hub!r}; there are {' and '.join(SITES)}")
    if not _ID.fullmatch(dataset_id):
        raise UsageError(f"a data set of a hub is named owner/name, not {dataset_id!r}")
    if split not in SPLITS:
        raise UsageError(f"no split {split!r}; there are {' and '.join(SPLITS)}")
    folder, name = f"2023/{split}", f"{dataset_id} ({split}) from {SITES[hub].label}"
    memory = _Memory(hub, dataset_id, split)
    if revision and COMMIT.fullmatch(revision) and (kept := memory.recall(revision)):
        progress(f"{name}: revision {revision} is here and unchanged")
        return kept
    with client_for(hub, dataset_id) as client:
        try:
            listing = client.listing(revision or None, folder)
        except Unreachable as error:
            kept = memory.recall(revision)
            if kept is None:
                raise
            progress(f"{error.message}; {name} is used as last fetched, revision {kept.revision}")
            return kept
        _check(listing, dataset_id, folder)
        root, digests = _download(client, listing, name, progress)
    for line in _remove_stale(root / folder, listing):
        progress(line)
    fetched = Fetched(root=root, id=dataset_id, revision=listing.revision)
    try:
        memory.keep(fetched, digests, revision)
    except HarnessError as error:
        progress(f"{name} will not be found without the hub: {error.message}")
    return fetched


def _check(listing: Listing, dataset_id: str, folder: str) -> None:
    """DataError for a listing that cannot be a split of GAIA, before anything is fetched."""
    for file in listing.files:
        path = PurePosixPath(file.path)
        if ".." in path.parts or "\\" in file.path or not path.is_relative_to(folder):
            raise DataError(f"{dataset_id}: the hub lists {file.path!r} in {folder}")
    names = {PurePosixPath(file.path).relative_to(folder).as_posix() for file in listing.files}
    if not any(map(_METADATA.fullmatch, names)):
        raise DataError(
            f"no samples: {dataset_id} at revision {listing.revision} has neither"
            f" {folder}/metadata.jsonl nor {folder}/metadata.parquet",
            hint="check --dataset-id, --revision and --split",
        )


def _download(
    client: Client, listing: Listing, name: str, progress: Callable[[str], None]
) -> tuple[Path, dict[str, str]]:
    """The snapshot's root and every file's SHA-256."""
    count, total = len(listing.files), sum(file.size for file in listing.files)
    progress(f"{name}: revision {listing.revision}, {count} files, {_megabytes(total)}")
    roots, digests, size, said = set(), {}, 0, time.monotonic()
    pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="hub")
    try:
        futures = {
            pool.submit(_whole, client, file, listing.revision): file for file in listing.files
        }
        for future in as_completed(futures):
            file = futures[future]
            path, digests[file.path] = future.result()
            roots.add(path.parents[len(PurePosixPath(file.path).parts) - 1])
            size += file.size
            if len(digests) == count or time.monotonic() - said >= _PERIOD:
                said = time.monotonic()
                progress(
                    f"{name}: {len(digests)} of {count} files here and checked,"
                    f" {_megabytes(size)} of {_megabytes(total)}"
                )
    finally:
        pool.shutdown(cancel_futures=True)
    (root,) = roots
    return root, digests


def _whole(client: Client, file: RemoteFile, revision: str) -> tuple[Path, str]:
    """The file and its SHA-256; LackError when the hub does not deliver what it lists."""
    for number in range(_TRIES):
        path = client.download(file, revision, again=number > 0)
        with _disk():
            digest, wrong = _compare(path, file)
        if not wrong:
            return path, digest
    with _disk():  # neither this program nor another may find the file there and trust it
        for spoiled in {path.resolve(), path}:
            spoiled.unlink(missing_ok=True)
    raise LackError(
        f"{file.path} arrives spoiled, {_TRIES} times: {wrong}",
        hint="try again later, or fetch from the other hub",
    )


def _compare(path: Path, file: RemoteFile) -> tuple[str, str]:
    """SHA-256 of what is there, and in what it differs from the listing, if it does."""
    size, digest, git = 0, sha256(), sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            size += len(chunk)
            digest.update(chunk)
            git.update(chunk)
    found = digest.hexdigest()
    if size != file.size:
        return found, f"it has {size} bytes, not {file.size}"
    if file.sha256 and found != file.sha256.lower():
        return found, f"its SHA-256 is {found}, not {file.sha256}"
    if file.git and git.hexdigest() != file.git:
        return found, f"its git SHA-1 is {git.hexdigest()}, not {file.git}"
    return found, ""


def _remove_stale(folder: Path, listing: Listing) -> list[str]:
    """Remove metadata that the revision does not have, which `load` would read; what was done.

    ModelScope's client puts successive states of a branch into one folder and removes nothing.
    """
    listed = {PurePosixPath(file.path).name for file in listing.files}
    with _disk():
        found = [path for path in sorted(folder.iterdir()) if _METADATA.fullmatch(path.name)]
        stale = [path for path in found if path.name not in listed]
        for path in stale:
            path.unlink()
    return [f"removed {path}: revision {listing.revision} does not have it" for path in stale]


@contextlib.contextmanager
def _disk() -> Iterator[None]:
    """LackError for what this machine's disk does not allow."""
    try:
        yield
    except OSError as error:
        raise LackError(
            f"{error.filename}: {error.strerror}", hint="mend or remove it; it is fetched again"
        ) from error


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


# ------------------------------------------------------------------------------- without the hub


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a successful fetch left behind."""

    format: Literal["gaia-harness-hub/1"] = "gaia-harness-hub/1"
    root: str
    revision: str
    files: dict[str, str]
    """Path below the root → SHA-256."""


class _Memory:
    """Which files made up a split, by what was asked for; kept in the user's cache."""

    def __init__(self, hub: str, dataset_id: str, split: str) -> None:
        self._id = dataset_id
        self._key = (hub, SITES[hub].endpoint() or "", dataset_id, split)

    def keep(self, fetched: Fetched, files: dict[str, str], asked: str | None) -> None:
        kept = _Kept(root=str(fetched.root), revision=fetched.revision, files=files)
        for revision in {asked, fetched.revision}:
            Folder(cache_folder()).write(self._name(revision), msgspec.json.encode(kept))

    def recall(self, asked: str | None) -> Fetched | None:
        """The last fetch, if every one of its files is still what it was."""
        try:
            data = Folder(cache_folder()).read(self._name(asked))
            kept = msgspec.json.decode(data, type=_Kept)
            root = Path(kept.root)
            intact = all(_sha256(root / path) == digest for path, digest in kept.files.items())
        except (OSError, HarnessError, msgspec.MsgspecError):
            return None
        return Fetched(root=root, id=self._id, revision=kept.revision) if intact else None

    def _name(self, revision: str | None) -> str:
        key = "\n".join((*self._key, revision or ""))
        return f"hub/{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}.json"


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()
