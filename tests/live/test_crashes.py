"""SIGKILL at random instants: 10 here, 200 with `python -m tests.live.crashes`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.crashes import crash_test

pytestmark = pytest.mark.usefixtures("full_image")


def test_nothing_that_was_paid_is_lost_or_paid_again(tmp_path: Path) -> None:
    crash_test(tmp_path, kills=10, seed=7, say=print)
