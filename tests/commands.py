"""`harness` as it is typed, in this process; a script stands for what it would ask live."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli import cli
from harness.store import Store
from tests.scripted import Backend

NOWHERE = "http://127.0.0.1:9/v1"
"""An address that is never asked: the backend is scripted."""


def command(*args: str) -> Result:
    """One command. Whatever it is given, it ends with a status and never with a traceback."""
    result = CliRunner().invoke(cli, args)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"harness {' '.join(args)}") from result.exception
    assert "Traceback" not in result.output or "--debug" in args, result.output
    return result


def recording(run: str, *more: str) -> tuple[str, ...]:
    """The arguments of a recording of the data set in the folder `data`."""
    return (
        "record", "--run", run, "--dataset", "data", "--model", "scripted", "--api-url", NOWHERE,
        *more,
    )  # fmt: skip


class Commands:
    """A folder to work in, with a store `st` in it and a backend that `record` and a fork ask."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.backend = folder, Backend()
        self.store = Store(folder / "st")
        monkeypatch.chdir(folder)
        monkeypatch.setenv("HARNESS_STORE", str(folder / "st"))
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("harness.cli.record.connect", lambda *_: self.backend)

    def __call__(self, *args: str, status: int | None = 0) -> Result:
        """`harness …`, which must end with that status (None: with any)."""
        result = command(*args)
        assert status is None or result.exit_code == status, result.output
        return result

    def record(
        self, *more: str, run: str = "r", status: int | None = 0, backend: Backend | None = None
    ) -> Result:
        """`harness record`, with a new backend unless one is given."""
        self.backend = backend or Backend()
        return self(*recording(run, *more), status=status)
