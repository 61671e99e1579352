"""The guide's parameters, one by one: each has an effect that a test can see."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from harness import MCPServerConfigStdio, NativeAgentConfig, TaskConfig, run_task
from harness.errors import UsageError
from harness.replaying import replay_run
from harness.runfile import read_run
from harness.store import Store
from tests.live.chat_server import ChatServer, call, chat_server, says
from tests.scripted import dataset

pytestmark = pytest.mark.usefixtures("full_image")

ROWS = [("a", 1, "a"), ("b", 2, "b"), ("c", 3, "c"), ("d", 1, "d"), ("e", 2, "e")]
ROOT = Path(__file__).parent.parent.parent


def task_of(request: dict[str, Any]) -> str:
    return str(request["messages"][1]["content"]).partition("?")[0][-1]


def right_away(request: dict[str, Any]) -> dict[str, Any]:
    return says("I know it.", call("submit", answer=task_of(request)))


def once(command: str) -> Any:
    """Runs a command, then submits what it printed."""

    def decide(request: dict[str, Any]) -> dict[str, Any]:
        last = request["messages"][-1]
        if last["role"] == "tool":
            return says("Done.", call("submit", answer=last["content"]))
        return says("I look.", call("bash", command=command))

    return decide


def answers(report: Any) -> dict[str, str | None]:
    return {sample.task_id: sample.answer for sample in report.samples}


def configured(server: ChatServer, tmp_path: Path, **more: Any) -> TaskConfig:
    data = tmp_path / "data"
    if not data.exists():
        dataset(data, ROWS)
    args = more.pop("dataset_args", {})
    extra = {"network_enabled": False, **args.pop("extra_params", {})}
    return TaskConfig(
        model="m",
        api_url=server.url,
        api_key="sk-of-the-guide-0123456789",
        eval_type="openai_api",
        datasets=["gaia"],
        dataset_args={"gaia": {"dataset_id": str(data), "extra_params": extra, **args}},
        work_dir=str(tmp_path / "store"),
        run_name="r",
        **more,
    )


def test_subset_list_and_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with chat_server(right_away) as server:
        levels = ["2023_level1", "2023_level2"]
        report = run_task(
            task_cfg=configured(
                server, tmp_path, dataset_args={"subset_list": levels}, limit=3, eval_batch_size=3
            )
        )
    assert len(report.samples) == 3
    assert {sample.level for sample in report.samples} <= {1, 2}
    assert report.metrics["mean_acc"] == 1.0
    printed = capsys.readouterr().out
    for title in ("Model", "Dataset", "Metric", "Subset", "Num", "Score", "Cat.0"):
        assert title in printed
    assert "| m     | data    | mean_acc | 2023_level1 " in printed
    with chat_server(right_away) as server, pytest.raises(UsageError, match="2023_level9"):
        run_task(configured(server, tmp_path, dataset_args={"subset_list": ["2023_level9"]}))


def test_generation_config_is_passed_through(tmp_path: Path) -> None:
    generation = {
        "temperature": 0.7,
        "top_p": 0.5,
        "max_tokens": 99,
        "seed": 3,
        "parallel_tool_calls": True,
        "stream": True,
        "extra_body": {"top_k": 4},
    }
    with chat_server(right_away) as server:
        run_task(configured(server, tmp_path, limit=1, generation_config=generation))
        (request,) = server.requests
        (headers,) = server.headers
    assert {key: request.get(key) for key in (*generation, "top_k") if key != "extra_body"} == {
        **{key: value for key, value in generation.items() if key != "extra_body"},
        "top_k": 4,
    }
    assert request["model"] == "m"
    assert headers["authorization"] == "Bearer sk-of-the-guide-0123456789"


def test_max_steps(tmp_path: Path) -> None:
    with chat_server(lambda request: says("Again.", call("bash", command="true"))) as server:
        report = run_task(
            configured(server, tmp_path, limit=1, dataset_args={"extra_params": {"max_steps": 3}})
        )
        assert len(server.requests) == 3
    assert report.samples[0].verdict == "no_answer"


def test_command_timeout(tmp_path: Path) -> None:
    with chat_server(once("echo begun; sleep 600")) as server:
        report = run_task(
            configured(
                server, tmp_path, limit=1, dataset_args={"extra_params": {"command_timeout": 1.5}}
            )
        )
    assert report.samples[0].answer == "begun\n[stopped: still running after 1.5 s]"


@pytest.mark.parametrize("form", ["extra_params", "sandbox"])
def test_docker_image_and_network(tmp_path: Path, tiny_image: str, form: str) -> None:
    """Both forms that are in use say which image, and whether there is a network."""
    look = "command -v python3 || echo no python; ls /sys/class/net | grep -cv lo"
    with chat_server(once(look)) as server:
        found = {}
        for image, network in ((tiny_image, False), ("python:3.11", True)):
            more: dict[str, Any]
            if form == "extra_params":
                extra = {"docker_image": image, "network_enabled": network}
                more = {"dataset_args": {"extra_params": extra}}
            else:
                default = {"image": image, "network_enabled": network}
                more = {"sandbox": {"default_config": default}}
            config = configured(server, tmp_path / image.replace(":", "-"), limit=1, **more)
            found[image] = str(run_task(config).samples[0].answer)
    assert found[tiny_image].startswith("no python\n0")
    assert found["python:3.11"].startswith("/usr/local/bin/python3\n1")


def test_eval_batch_size_is_how_many_are_in_flight(tmp_path: Path) -> None:
    """Each request waits until as many samples have asked as may be in flight."""
    together = threading.Barrier(3, timeout=60)

    def decide(request: dict[str, Any]) -> dict[str, Any]:
        together.wait()
        return right_away(request)

    with chat_server(decide) as server:
        report = run_task(configured(server, tmp_path, limit=3, eval_batch_size=3))
    assert report.metrics["right"] == 3


def test_the_agent_config_form_with_an_mcp_server(tmp_path: Path) -> None:
    """The agent sees bash, submit and the server's tools; the replay starts no server."""
    server_script = ROOT / "tests" / "mcp_servers" / "sdk_server.py"

    def decide(request: dict[str, Any]) -> dict[str, Any]:
        last = request["messages"][-1]
        if last["role"] == "tool":
            return says("Done.", call("submit", answer=last["content"]))
        return says("I add.", call("add", a=19, b=23))

    with chat_server(decide) as server:
        report = run_task(
            configured(
                server,
                tmp_path,
                limit=2,
                eval_batch_size=2,
                agent_config=NativeAgentConfig(
                    max_steps=4,
                    command_timeout=20.0,
                    mcp_servers=[
                        MCPServerConfigStdio(
                            command=sys.executable,
                            args=[str(server_script), "stdio"],
                            name="sums",
                            tools=["add"],
                        )
                    ],
                ),
            )
        )
        names = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
    assert names == ["bash", "submit", "add"]
    assert set(answers(report).values()) == {"42"}
    store = Store(tmp_path / "store")
    assert [tool["name"] for tool in read_run(store, "r").tools] == ["add"]
    replayed, findings = replay_run(store, "r")
    assert not findings
    assert all(sample.identical for sample in replayed.samples)
    kept = store.files.read("runs/r.json").decode()
    assert json.loads(kept)["settings"]["mcp"][0]["name"] == "sums"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"eval_batchsize": 3}, "did you mean 'eval_batch_size'"),
        ({"dataset_args": {"extra_params": {"max_step": 3}}}, "did you mean 'max_steps'"),
        ({"generation_config": {"temprature": 1}}, "did you mean 'temperature'"),
        ({"sandbox": {"default_config": {"imagee": "x"}}}, "did you mean 'image'"),
        ({"agent_config": {"maxsteps": 3}}, "did you mean 'max_steps'"),
        ({"dataset_hub": "hugginface"}, "did you mean 'huggingface'"),
    ],
)
def test_an_unknown_key_names_the_nearest(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    with chat_server(right_away) as server, pytest.raises(UsageError) as caught:
        run_task(configured(server, tmp_path, **change))
    assert told in str(caught.value)
    assert server.requests == []
