"""What is said about a hub when it does not deliver. No token and no signed address is in it."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from harness.errors import HarnessError, LackError


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be said about a hub in messages."""

    label: str
    package: str
    endpoint_variable: str
    cache_variable: str
    token_variable: str
    token_page: str
    """Below the endpoint: where an account finds its tokens."""

    def endpoint(self) -> str | None:
        """The address that the user set; None leaves it to the client."""
        return os.environ.get(self.endpoint_variable, "").strip().rstrip("/") or None


SITES = {
    "modelscope": Site(
        label="ModelScope",
        package="modelscope",
        endpoint_variable="MODELSCOPE_ENDPOINT",
        cache_variable="MODELSCOPE_CACHE",
        token_variable="MODELSCOPE_API_TOKEN",
        token_page="my/myaccesstoken",
    ),
    "huggingface": Site(
        label="Hugging Face",
        package="huggingface_hub",
        endpoint_variable="HF_ENDPOINT",
        cache_variable="HF_HOME",
        token_variable="HF_TOKEN",
        token_page="settings/tokens",
    ),
}


class Unreachable(LackError):
    """The hub gives no useful answer now, and may later."""


@contextlib.contextmanager
def told(site: Site, endpoint: str, dataset_id: str, file: str = "") -> Iterator[None]:
    """Exceptions of a hub's client leave as the project's own; `file`: the one being fetched."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        raise _explained(error, site, _shown(endpoint), dataset_id, file) from error


def no_revision(dataset_id: str, revision: str, known: list[str]) -> LackError:
    """`known`: the revisions that the hub tells of, if it does."""
    there = f"; there are: {', '.join(known)}" if known else ""
    return LackError(
        f"{dataset_id!r} has no revision {revision!r}{there}",
        hint="--revision NAME or a full commit; without the option it is the newest",
    )


def _explained(error: Exception, site: Site, where: str, dataset_id: str, file: str) -> LackError:
    links = list(_chain(error))
    status = next(filter(None, map(_status, links)), None)
    if status in (401, 403):
        # Hugging Face also answers 401 for what it does not have
        what = "gated, private or not there" if status == 401 else "gated or private"
        return LackError(
            f"{site.label} refuses access to {dataset_id!r} ({status}): it is {what}; accept its"
            f" terms at {where}/datasets/{dataset_id}, then put a token of that account into"
            f" {site.token_variable}",
            hint=f"export {site.token_variable}=<a token from {where}/{site.token_page}>",
        )
    if status == 404 and file:
        return LackError(
            f"{site.label} at {where} lists {file} in {dataset_id!r}, and does not have it",
            hint="try again later, or another --revision",
        )
    if status == 404:
        return LackError(
            f"{site.label} at {where} has no data set {dataset_id!r}, or hides it from you",
            hint=f"check --dataset-id; a private one needs a token in {site.token_variable}",
        )
    asked = f" for {file}" if file else ""
    if status is not None:
        return Unreachable(
            f"{site.label} at {where} answers with status {status}{asked}", hint="try again later"
        )
    if local := next(filter(_of_disk, links), None):
        return LackError(
            f"the cache of {site.package} cannot be written: {local}",
            hint=f"free or open the disk, or set {site.cache_variable} to another folder",
        )
    if any(map(_of_network, links)):
        failure = f"does not deliver {file}" if file else "cannot be reached"
        return Unreachable(
            f"{site.label} at {where} {failure} ({_words(links[-1])})",
            hint=f"check the network, or set {site.endpoint_variable} to a mirror",
        )
    return LackError(
        f"the client of {site.label} failed at {where} ({_words(links[-1])})",
        hint=f"check {site.endpoint_variable}, or: pip install --upgrade {site.package}",
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and its causes: both clients wrap what the transport said."""
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            return
        yield link
        link = link.__cause__


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    if status is None:
        status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) and status >= 400 else None


def _of_disk(error: BaseException) -> bool:
    """It speaks of this machine's disk: it names a file, or says that there is no room."""
    return isinstance(error, OSError) and (
        error.errno in (errno.ENOSPC, errno.EDQUOT)
        or (error.errno is not None and error.filename is not None)
    )


def _of_network(error: BaseException) -> bool:
    package = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError) or package in ("httpx", "httpx2", "httpcore", "urllib3")


def _shown(endpoint: str) -> str:
    """The address without a user and a password."""
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else endpoint


def _words(error: BaseException) -> str:
    """The exception in one short line without addresses and tokens."""
    line = next(iter(str(error).strip().splitlines()), "")
    line = re.sub(r"https?://\S+|\?\S+=\S+", "…", line)  # a query may be a signature
    for site in SITES.values():
        if secret := os.environ.get(site.token_variable):
            line = line.replace(secret, "…")
    return f"{type(error).__name__}: {line[:160]}" if line else type(error).__name__
