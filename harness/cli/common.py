"""What several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from harness.store import Store

F = TypeVar("F", bound=Callable[..., Any])

store_option = click.option(
    "--store",
    "store_path",
    envvar="HARNESS_STORE",
    default="cassettes",
    show_default=True,
    metavar="DIR",
    help="Where runs and cassettes are kept.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per run.")


def open_store(path: str) -> Store:
    """An existing store."""
    store = Store(path)
    store.check()
    return store


def runs_or_all(store: Store, names: Sequence[str]) -> list[str]:
    """The runs named, or every run of the store."""
    if names:
        return list(dict.fromkeys(names))
    found = store.runs()
    if not found:
        from harness.errors import UsageError

        raise UsageError(f"{store.label} holds no run", hint="harness record --run NAME …")
    return found


def say(line: str) -> None:
    """Progress and findings go to stderr."""
    from harness.terminal import printable

    print(printable(line, keep="\n"), file=sys.stderr, flush=True)


def emit(text: str) -> None:
    """Results go to stdout, whatever its encoding can hold."""
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.flush()
