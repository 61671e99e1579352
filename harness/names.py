"""Names for objects of the store that no run stands on, such as the cassettes of vcrpy's users.

    names/<kind>/<64 hex>.json      one name, by its SHA-256, and the object that it stands for

What has a name is kept by `gc` and checked by `verify`. A name can be given to another object; the
one before is then garbage, unless something else stands on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Literal, NamedTuple

import msgspec

from harness.errors import DamageError
from harness.store import Store

FORMAT = "gaia-harness-name"
VERSION = 1

Kind = Literal["vcr"]


class Named(NamedTuple):
    """A name and what it stands for."""

    kind: str
    name: str
    object: str
    """`sha256:…`"""


class _Stored(msgspec.Struct, kw_only=True):
    format: str
    version: int
    kind: str
    name: str
    object: str


def keep(store: Store, kind: Kind, name: str, data: bytes) -> str:
    """Store bytes under a name, in place of what had it; returns the object's name.

    UsageError while another process removes things from the store.
    """
    store.create()
    with store.files.lock("journal/.lock", exclusive=False):  # no gc between the two writes
        found = store.put(data)
        fields = {"format": FORMAT, "version": VERSION, "kind": kind, "name": name}
        text = json.dumps({**fields, "object": found}, indent=1)
        store.files.write(_path(kind, name), text.encode() + b"\n")
    return found


def find(store: Store, kind: Kind, name: str) -> bytes | None:
    """The bytes under a name, verified; None when there is no such name. DamageError otherwise."""
    store_path = _path(kind, name)
    if not store.files.exists(store_path):
        return None
    found = _read(store, store_path)
    return store.get(found.object, f"the {kind} cassette {name!r}")


def forget(store: Store, kind: Kind, name: str) -> None:
    """Remove a name; what it stood for goes with the next `gc`."""
    store.files.remove(_path(kind, name))


def paths(store: Store) -> list[str]:
    """The files of all names, for `read`."""
    return store.files.listing("names")


def read(store: Store, path: str) -> Named:
    """The name in a file. DamageError when the file is not as it was written."""
    found = _read(store, path)
    return Named(found.kind, found.name, found.object)


def everything(store: Store) -> Iterator[Named]:
    """All names. DamageError when one cannot be read: what it stands for is then not known."""
    return (read(store, path) for path in paths(store))


def _path(kind: str, name: str) -> str:
    return f"names/{kind}/{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}.json"


def _read(store: Store, path: str) -> _Stored:
    label = store.files.label(path)
    try:
        # the standard library: a path that is no UTF-8 has lone surrogates
        found = msgspec.convert(json.loads(store.files.read(path)), _Stored)
    except FileNotFoundError:
        raise DamageError(f"{label} is missing") from None
    except (ValueError, RecursionError) as error:
        raise DamageError(f"{label} is damaged: {error}") from None
    if found.format != FORMAT or found.version != VERSION:
        raise DamageError(f"{label} is no name of version {VERSION}")
    if _path(found.kind, found.name) != path:
        raise DamageError(f"{label} is damaged: it is the file of another name")
    return found
