"""vcrpy's cassettes in a store of ours: verified, kept once, written whole or not at all.

    my_vcr = vcr.VCR()
    my_vcr.register_persister(harness.interop.vcr.persister("cassettes"))

Every cassette is an object of the store, named by its SHA-256, under the path that vcrpy calls it
by. `harness verify` checks them, `harness gc` keeps them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from harness import names
from harness.errors import DamageError
from harness.store import Store


class Persister:
    """What vcrpy asks for cassettes. Paths are told apart as seen from `root`."""

    def __init__(self, store: Store, root: Path) -> None:
        self._store, self._root = store, root

    def load_cassette(self, cassette_path: Any, serializer: Any) -> Any:
        """The requests and responses of a cassette, as vcrpy wants them.

        Raises vcrpy's CassetteNotFoundError when there is none, and DamageError when what is there
        is not what was saved: damage is never a miss, which would be recorded anew.
        """
        from vcr.persisters.filesystem import CassetteNotFoundError
        from vcr.serialize import deserialize

        name = self._name(cassette_path)
        data = names.find(self._store, "vcr", name)
        if data is None:
            raise CassetteNotFoundError(f"{self._store.label} has no cassette {name}")
        try:
            text = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise DamageError(f"the vcr cassette {name!r} is no text") from None
        return deserialize(text, serializer)

    def save_cassette(self, cassette_path: Any, cassette_dict: Any, serializer: Any) -> None:
        """Store a cassette, in place of the one of that path."""
        from vcr.serialize import serialize

        text: str | bytes = serialize(cassette_dict, serializer)
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        names.keep(self._store, "vcr", self._name(cassette_path), data)

    def remove(self, cassette_path: Any) -> None:
        """Forget a cassette; its bytes go with the next `harness gc`."""
        names.forget(self._store, "vcr", self._name(cassette_path))

    def paths(self) -> list[str]:
        """The paths of all cassettes, as seen from the root."""
        return sorted(found.name for found in names.everything(self._store) if found.kind == "vcr")

    def _name(self, cassette_path: Any) -> str:
        """A path that is the same on every machine that has the root."""
        path = os.path.join(self._root, os.fspath(cassette_path))
        try:
            path = os.path.relpath(path, self._root)
        except ValueError:  # another drive
            path = os.path.normpath(path)
        return Path(path).as_posix()


def persister(
    store: Store | str | os.PathLike[str], root: str | os.PathLike[str] | None = None
) -> Persister:
    """For `VCR.register_persister`: keeps vcrpy's cassettes in a store.

    `store`: a store, or its folder, which is made with the first cassette. `root`: the folder that
    the paths of cassettes are seen from, default the current one, so that a project can be moved.
    """
    found = store if isinstance(store, Store) else Store(store)
    return Persister(found, Path(os.path.abspath(root if root is not None else os.curdir)))
