"""Values of options that nothing can be done with: one line, exit status 2, nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness import TaskConfig
from harness.cli import cli
from harness.config import parse_generation, record_config
from harness.errors import UsageError

HUGE = "1" + "0" * 400
DEEP = "[" * 200 + "]" * 200

OPTIONS = [
    *(("-g", f"temperature={value}") for value in ("NaN", "Infinity", "1e400", HUGE)),
    *(("-g", f"timeout={value}") for value in ("NaN", "-1", "0", "1e400", "1e300", HUGE)),
    *(("-g", f"retry_interval={value}") for value in ("NaN", "-1", "-Infinity", HUGE)),
    ("-g", "retries=-1"),
    ("-g", f"seed={HUGE}"),
    ("-g", 'extra_body={"x": [NaN]}'),
    ("-g", f'extra_body={{"x": {DEEP}}}'),
    *(("--command-timeout", value) for value in ("nan", "inf", "-inf", "0", "-1", "1e300")),
    *(("--sample-seconds", value) for value in ("nan", "inf", "0", "-1", "1e300")),
    *(("--cpus", value) for value in ("nan", "inf", "0", "-1")),
    *(("--epochs", value) for value in ("0", "-1", "1000000000")),
    *((f"--{name}", HUGE) for name in ("max-steps", "context-limit", "shuffle-seed")),
    *(("--model", value) for value in ("", " ")),
    ("--api-url", "http://[::1"),
]


@pytest.mark.parametrize(("option", "value"), OPTIONS, ids=lambda text: text[:40])
def test_an_odd_option(
    option: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none-at-all-0000")
    command = ["record", "--run", "r", "--store", str(tmp_path / "store"), "--dataset", "mini",
               "--model", "m", "--plan", option, value]  # fmt: skip
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    assert "rror: " in done.output
    assert len(done.output) < 2000
    assert not (tmp_path / "store").exists()


def each(field: str, *values: Any) -> list[dict[str, Any]]:
    return [{field: value} for value in values]


MINI = {"gaia": {"dataset_id": "mini"}}
NAN = float("nan")


@pytest.mark.parametrize(
    "given",
    [
        *each("model", None, "", " ", 5, b"m"),
        *each("limit", "x", 2.5, NAN, [1], {"gaia": 1}, 0),
        *each("epochs", None, 0, "x", 1.5, 10**9),
        *each("eval_batch_size", None, 0, "x"),
        *each("generation_config", [1], 5, "temperature=0", {1: 2}),
        *(
            {"generation_config": {"extra_body": {"x": value}}}
            for value in (NAN, {1}, b"x", Path("x"), {1: 2}, [[10**400]])
        ),
        *each("datasets", None, 5, [], "gaia"),
        *each("dataset_args", 5, {5: 1}, {"gaia": None}),
        *(
            {"dataset_args": {"gaia": {"dataset_id": "mini", "extra_params": value}}}
            for value in (None, {"max_steps": NAN}, {"max_steps": 0}, {"command_timeout": NAN})
        ),
        *each("dataset_hub", None, 5, ""),
        *({"agent_config": {"mcp_servers": value}} for value in (None, "x", [5], [{"url": "x"}])),
        *({"agent_config": {"context_limit": value}} for value in (0, -1, NAN)),
        *(
            {"sandbox": {"default_config": value}}
            for value in (None, {"cpus": NAN}, {"cpus": -1}, {"pids_limit": 0}, {"memory": 5})
        ),
        *({name: 5} for name in ("run_name", "work_dir", "api_key", "api_url", "sandbox")),
        {"api_url": "http://[::1"},
        {"ignore_errors": "no"},
    ],
    ids=lambda given: repr(given)[:60],
)
def test_an_odd_task_config(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        record_config(
            TaskConfig(**{"model": "m", "api_key": "k", "dataset_args": MINI, **given}).options()
        )


def test_numbers_may_be_written_as_text() -> None:
    config = TaskConfig(model="m", limit="5", epochs=3.0, eval_batch_size="4", dataset_args=MINI)
    options = config.options()
    assert (options.limit, options.epochs, options.eval_batch_size) == (5, 3, 4)


def test_a_large_seed_is_a_seed() -> None:
    assert parse_generation([f"seed={2**64}"]) == {"seed": 2**64}
    given = {"seed": 2**64, "extra_body": {"x": [None, (1, 2)]}}
    config = TaskConfig(model="m", api_key="k", dataset_args=MINI, generation_config=given)
    assert record_config(config.options()).settings.loop.params["seed"] == 2**64
