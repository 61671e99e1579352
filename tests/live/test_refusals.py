"""Refusals of a real endpoint, end to end: the sample ends, once, and says why (D15)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cassette import ModelEffect, read_cassette
from harness.runfile import read_run
from harness.store import Store
from tests.commands import command
from tests.quirk_server import QuirkServer
from tests.quirks import QUIRKS
from tests.scripted import dataset

REFUSALS = (
    "D15-content_filter", "D15-refusal-text", "D15-refusal-part", "D15-message-null",
    "D15-choices-empty", "D15-400-content_filter",
)  # fmt: skip


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QuirkServer]:
    """The odd endpoints; the current folder holds a data set of one sample."""
    dataset(tmp_path / "data", [("a", 1, "x")])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_STORE", "st")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with QuirkServer() as running:
        yield running


def record(server: QuirkServer, model: str, *more: str) -> dict[str, Any]:
    """One sample of one run, named after the model."""
    result = command(
        "record", "--run", model, "--dataset", "data", "--model", model, "--api-url", server.url,
        "--sandbox", "local", "--json", "-g", "retry_interval=0.01", *more,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("stream", ["true", "false"], ids=["streamed", "whole"])
@pytest.mark.parametrize("model", REFUSALS)
def test_a_refusal_ends_the_sample_and_is_asked_for_once(
    server: QuirkServer, model: str, stream: str
) -> None:
    """D15: a content filter, a refusal's text, no message, no choices: `refused`, counted, one
    request, no exception; a replay says the same."""
    found = record(server, model, "-g", f"stream={stream}")
    (sample,) = found["samples"]
    assert (sample["status"], sample["verdict"], sample["answer"]) == ("ok", "refused", None)
    assert sample["steps"] == 1
    assert found["metrics"]["refused"] == 1
    assert found["metrics"]["mean_acc"] == 0.0
    assert len(server.asked) == 1
    replayed = command("replay", model, "--json")
    assert replayed.exit_code == 0, replayed.output
    (again,) = json.loads(replayed.stdout)["samples"]
    assert (again["verdict"], again["identical"]) == ("refused", True)
    assert len(server.asked) == 1


def test_a_finish_reason_that_nobody_knows_is_kept_as_it_came(server: QuirkServer) -> None:
    """D15: it stops nothing, and stands on the tape word for word."""
    found = record(server, "D15-finish-unknown", "--max-steps", "1")
    assert found["samples"][0]["verdict"] == "no_answer"
    entry = read_run(Store("st"), "D15-finish-unknown").samples[0]
    assert entry.cassette is not None
    (effect,) = read_cassette(Store("st"), entry.cassette, "it").effects
    assert isinstance(effect, ModelEffect)
    assert effect.reply is not None
    sent = json.loads(b"".join(QUIRKS["D15-finish-unknown"].whole[0].pieces))["choices"][0][
        "finish_reason"
    ]
    assert effect.reply.finish_reason == sent
    assert sent not in ("stop", "length", "tool_calls", "content_filter")
