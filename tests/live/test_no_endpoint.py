"""An endpoint where nobody ever answers: the run is given up, and goes on when somebody does."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.live.line import RUN, containers_of, harness, policy, recording, samples

pytestmark = pytest.mark.usefixtures("full_image")

QUICK = ("--limit", "3", "-g", "retries=1", "-g", "retry_interval=0.1", "--json")


class Nobody:
    """An address that nothing listens at."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_a_run_without_an_endpoint_is_given_up(tmp_path: Path) -> None:
    """Not sample by sample, each with all its retries; and none of them is in error."""
    store = tmp_path / "st"
    done = harness(*recording(store, Nobody(), *QUICK))
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("trying again") == 1
    assert "  try: " in done.stderr
    assert containers_of(RUN) == []
    listed = harness("show", RUN, "--store", str(store), "--json")
    assert {sample["status"] for sample in samples(listed.stdout).values()} == {"missing"}
    with policy(tmp_path / "server") as server:
        done = harness(*recording(store, server, *QUICK))
        assert done.returncode == 0, done.stderr
        assert {sample["status"] for sample in samples(done.stdout).values()} == {"ok"}
