"""Which image a run uses; pulled, with progress, when the engine does not have it."""

from __future__ import annotations

import time
from typing import Any

from harness.errors import LackError
from harness.live.docker_client import Client, cause, is_engine_error
from harness.live.sandbox import ImageIdentity, Progress

_EVERY = 2.0
"""Seconds between two lines of progress."""


def identify(client: Client, reference: str, progress: Progress) -> ImageIdentity:
    """The image of that name. One that is here is used as it is, without asking any registry.

    LackError, with the remedy, when it is not here and cannot be pulled.
    """
    from docker.errors import ImageNotFound

    try:
        found = client.inspect_image(reference)
    except ImageNotFound:
        _pull(client, reference, progress)
        found = client.inspect_image(reference)
    layers = tuple((found.get("RootFS") or {}).get("Layers") or ())
    return ImageIdentity(reference, found["Id"], layers)


def _pull(client: Client, reference: str, progress: Progress) -> None:
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(reference)
    progress(f"image {reference} is not here: pulling it")
    start = said = time.monotonic()
    layers: dict[str, tuple[str, int, int]] = {}
    try:
        for line in client.pull(repository, tag=tag or "latest", stream=True, decode=True):
            if "error" in line:
                raise _failed(reference, str(line["error"]))
            _note(layers, line)
            if layers and time.monotonic() - said >= _EVERY:
                said = time.monotonic()
                progress(f"pulling {reference}: {_summary(layers)}")
    except Exception as error:
        if not is_engine_error(error):
            raise
        raise _failed(reference, cause(error)) from error
    progress(f"pulled {reference} in {time.monotonic() - start:.0f} s")


def _note(layers: dict[str, tuple[str, int, int]], line: dict[str, Any]) -> None:
    """Keep what one line of the engine says about one layer."""
    status, layer = str(line.get("status", "")), line.get("id")
    if not layer or status.startswith("Pulling from"):
        return
    _, current, total = layers.get(layer, ("", 0, 0))
    if status == "Downloading":
        detail = line.get("progressDetail") or {}
        current, total = detail.get("current", current), detail.get("total", total)
    elif status in ("Download complete", "Pull complete", "Already exists"):
        current = total
    layers[layer] = (status, current, total)


def _summary(layers: dict[str, tuple[str, int, int]]) -> str:
    done = sum(status in ("Pull complete", "Already exists") for status, _, _ in layers.values())
    got = sum(current for _, current, _ in layers.values()) / 1e6
    size = sum(total for _, _, total in layers.values()) / 1e6
    return f"{done} of {len(layers)} layers, {got:.1f} of {size:.1f} MB"


def _failed(reference: str, why: str) -> LackError:
    text = why.lower()
    if "toomanyrequests" in text or "too many requests" in text or "rate limit" in text:
        hint = "wait, raise the limit with `docker login`, or name an image of `docker images`"
    elif "not found" in text or "unknown" in text or "denied" in text or "does not exist" in text:
        hint = f"check the name with `docker pull {reference}`; a private one needs `docker login`"
    else:
        hint = (
            f"`docker pull {reference}` when the registry can be reached, "
            "`docker load -i FILE`, or name an image of `docker images`"
        )
    return LackError(f"image {reference} cannot be had: {why}", hint=hint)
