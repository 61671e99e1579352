"""Fixtures for all tests. Sockets are blocked outside tests/live."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_socket
from hypothesis import settings

from harness.store import Store

settings.register_profile("ci", deadline=None, print_blob=True)
settings.load_profile("ci")

# a shell starts background jobs with SIGINT ignored, nohup ignores SIGHUP, and every child would
# inherit that
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

LIVE = Path(__file__).parent / "live"


@pytest.fixture(autouse=True)
def _no_network(request: pytest.FixtureRequest) -> Iterator[None]:
    """Replay and scoring must never reach out; neither may their tests."""
    if LIVE in Path(request.node.path).parents:
        yield
        return
    pytest_socket.disable_socket(allow_unix_socket=True)
    yield
    pytest_socket.enable_socket()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own cache or store."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("HARNESS_STORE", raising=False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store in a new folder."""
    found = Store(tmp_path / "cassettes")
    found.create()
    return found
