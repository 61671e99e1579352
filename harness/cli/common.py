"""What several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness.store import Store

if TYPE_CHECKING:
    from harness.costs import Price

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


def _price(context: click.Context, param: click.Parameter, given: str | None) -> Price | None:
    if not given:
        return None
    from harness.costs import parse_price

    return parse_price(given)


price_option = click.option(
    "--price",
    envvar="HARNESS_PRICE",
    metavar="IN[,OUT]",
    callback=_price,
    help="Price of a million input and output tokens: shows what was paid.",
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


def repeated(context: click.Context, without: Collection[str]) -> str:
    """The options that were given on the command line, as text; not those named in `without`."""
    from shlex import join

    words: list[str] = []
    for option in context.command.params:
        name = option.name or ""
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if not isinstance(option, click.Option) or not given or name in without:
            continue
        value = context.params[name]
        if option.is_flag:
            words.append(option.opts[0] if value else option.secondary_opts[0])
            continue
        for item in value if option.multiple else [value]:
            words += [option.opts[0], str(item)]
    return join(words)


class Stopped:
    """What stopped whole runs of a command over several; each is said once, the others go on."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._statuses: list[int] = []

    def add(self, problem: str, status: int) -> None:
        """Say what stopped a run."""
        if problem not in self._said:
            say(f"error: {problem}")
        self._said.add(problem)
        self._statuses.append(status)

    def status(self, failed: bool) -> int:
        """Exit status: a finding, here or in another run, comes before what cannot be used."""
        return 1 if failed or 1 in self._statuses else max(self._statuses, default=0)


def say(line: str) -> None:
    """Progress and findings go to stderr."""
    from harness.terminal import printable, tell

    tell(printable(line, keep="\n"))


def emit(text: str) -> None:
    """Results go to stdout, whatever its encoding can hold. LackError when they cannot."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        from harness.errors import LackError
        from harness.terminal import silence

        silence(sys.stdout.fileno())
        raise LackError(f"the output cannot be written: {error.strerror}") from error
