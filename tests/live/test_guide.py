"""The guide's parameters, one by one: each has an effect that a test can see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from harness import MCPServerConfigStdio, NativeAgentConfig, TaskConfig, run_task
from harness.errors import UsageError
from harness.replaying import replay_run
from harness.runfile import read_run
from harness.scoring import score_run
from harness.showing import recorded_report
from harness.store import Store
from tests.gaia_folder import row, write_folder
from tests.hubs.huggingface import HuggingFaceHub
from tests.hubs.modelscope import ModelScopeHub
from tests.live.chat_server import ChatServer, call, chat_server, says
from tests.live.line import environment
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


@pytest.mark.parametrize(
    ("levels", "chosen"), [([1], "ad"), ([2, 1], "abde"), ([1, 2, 3], "abcde"), (None, "abcde")]
)
def test_subset_list_of_one_two_three_levels(
    tmp_path: Path, levels: list[int] | None, chosen: str
) -> None:
    args = {} if levels is None else {"subset_list": [f"2023_level{n}" for n in levels]}
    with chat_server(right_away) as server:
        report = run_task(configured(server, tmp_path, dataset_args=args, eval_batch_size=5))
    assert answers(report) == {task_id: task_id for task_id in chosen}


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


def test_a_chosen_subset_without_a_sample_is_a_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F02: `limit` leaves level 3 empty; it is said, in the report and in every look at it later"""
    levels = ["2023_level3", "2023_level1"]
    with chat_server(right_away) as server:
        report = run_task(
            configured(server, tmp_path, dataset_args={"subset_list": levels}, limit=1)
        )
    expected = {
        "2023_level1": {"mean_acc": 1.0, "num": 1},
        "2023_level3": {"mean_acc": None, "num": 0},
    }
    assert report.metrics["by_subset"] == expected
    assert "| 2023_level3 |   0 |   n/a |" in capsys.readouterr().out
    store = Store(tmp_path / "store")
    replayed, _ = replay_run(store, "r")
    scored = score_run(store, "r").report
    for later in (replayed, scored, recorded_report(store, "r")):
        assert later.metrics["by_subset"] == expected


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


def test_generation_config_says_how_patiently_to_ask(tmp_path: Path) -> None:
    """`retries` attempts after the first; a reply that does not come in time is none."""
    generation = {"timeout": 1.0, "retries": 2, "retry_interval": 0.01}

    def never(request: dict[str, Any]) -> dict[str, Any]:
        time.sleep(4)
        return right_away(request)

    with chat_server(never) as server:
        report = run_task(configured(server, tmp_path, limit=1, generation_config=generation))
        assert len(server.requests) == 3
    assert report.samples[0].verdict == "error"


@pytest.mark.parametrize("stream", [None, False])
def test_whole_replies_unless_a_stream_is_asked_for(tmp_path: Path, stream: bool | None) -> None:
    generation = {} if stream is None else {"stream": stream}
    with chat_server(right_away) as server:
        run_task(configured(server, tmp_path, limit=1, generation_config=generation))
        (request,) = server.requests
    assert not request.get("stream")
    assert "parallel_tool_calls" not in request
    assert "temperature" not in request


def in_form(form: str, **loop: Any) -> dict[str, Any]:
    """The loop's settings in one of the two forms that are in use."""
    if form == "agent_config":
        return {"agent_config": NativeAgentConfig(**loop)}
    return {"dataset_args": {"extra_params": loop}}


FORMS = pytest.mark.parametrize("form", ["extra_params", "agent_config"])


@FORMS
def test_max_steps(tmp_path: Path, form: str) -> None:
    with chat_server(lambda request: says("Again.", call("bash", command="true"))) as server:
        report = run_task(configured(server, tmp_path, limit=1, **in_form(form, max_steps=3)))
        assert len(server.requests) == 3
    assert report.samples[0].verdict == "no_answer"


@FORMS
def test_command_timeout(tmp_path: Path, form: str) -> None:
    with chat_server(once("echo begun; sleep 600")) as server:
        report = run_task(configured(server, tmp_path, limit=1, **in_form(form, command_timeout=2)))
    assert report.samples[0].answer == "begun\n[stopped: still running after 2 s]"


@FORMS
def test_caps_on_outputs_and_histories(tmp_path: Path, form: str) -> None:
    """One output is cut; and of a long history the oldest outputs are cut further."""
    lines = "seq 1 1000"

    def decide(request: dict[str, Any]) -> dict[str, Any]:
        turns = sum(message["role"] == "assistant" for message in request["messages"])
        if turns == 4:
            return says("Done.", call("submit", answer="x"))
        return says("More.", call("bash", command=lines))

    with chat_server(decide) as server:
        loop = in_form(form, max_output_chars=1000, context_limit=2000)
        run_task(configured(server, tmp_path, limit=1, **loop))
        last = server.requests[-1]["messages"]
    sizes = [len(message["content"]) for message in last if message["role"] == "tool"]
    assert all(1000 < size < 1100 for size in sizes[-1:])
    assert sizes[0] < 500
    assert "bytes left out here" in last[-1]["content"]


def test_the_defaults_are_the_guide_s() -> None:
    options = TaskConfig(model="m").options()
    assert (options.max_steps, options.command_timeout) == (50, 180.0)
    assert options.sandbox == {"kind": "docker", "image": "python:3.11", "network": True}
    assert (options.dataset, options.dataset_id) == ("modelscope", "gaia-benchmark/GAIA")
    assert (options.split, options.subsets, options.limit) == ("validation", (), None)
    assert (options.eval_batch_size, options.epochs, options.generation) == (1, 1, {})
    assert options.ignore_errors is False


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


def test_no_more_are_in_flight_than_eval_batch_size(tmp_path: Path) -> None:
    now: set[str] = set()
    most = 0
    lock = threading.Lock()

    def decide(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal most
        with lock:
            now.add(task_of(request))
            most = max(most, len(now))
        time.sleep(0.3)
        with lock:
            now.discard(task_of(request))
        return right_away(request)

    with chat_server(decide) as server:
        report = run_task(configured(server, tmp_path, eval_batch_size=2))
    assert report.metrics["right"] == 5
    assert most == 2


@pytest.mark.parametrize("ignore", [True, False])
def test_a_failed_sample_is_counted_and_stops_nothing(tmp_path: Path, ignore: bool) -> None:
    """`ignore_errors` changes an exit status and nothing else: in Python, nothing."""

    def decide(request: dict[str, Any]) -> dict[str, Any]:
        if task_of(request) == "b":
            raise ConnectionAbortedError
        return right_away(request)

    with chat_server(decide) as server:
        config = configured(
            server, tmp_path, ignore_errors=ignore, generation_config={"retries": 0}
        )
        assert config.options().ignore_errors is ignore
        report = run_task(config)
    assert {s.task_id: s.verdict for s in report.samples} == {
        task_id: "error" if task_id == "b" else "right" for task_id in "abcde"
    }
    assert report.metrics["mean_acc"] == 4 / 5


EXAMPLE = """
import os
from harness import TaskConfig, run_task

task_cfg = TaskConfig(
    model='qwen3-max',
    api_url=os.environ['URL'],
    api_key=os.getenv('DASHSCOPE_API_KEY'),
    eval_type='openai_api',
    datasets=['gaia'],
    dataset_args={
        'gaia': {
            'subset_list': ['2023_level1'],
            'extra_params': {
                'max_steps': 50,
                'command_timeout': 180.0,
                'docker_image': 'python:3.11',
                'network_enabled': True,
            }
        }
    },
    eval_batch_size=5,
    limit=5,
    generation_config={
        'temperature': 0.7,
        'parallel_tool_calls': True,
        'stream': True,
    },
    **MORE
)
run_task(task_cfg=task_cfg)
"""


@pytest.mark.parametrize("hub", [None, "huggingface"])
def test_the_guide_s_example_as_a_script(tmp_path: Path, hub: str | None) -> None:
    """All its arguments, and the hub: ModelScope unless `dataset_hub` says otherwise."""
    pytest.importorskip("modelscope_hub")
    pytest.importorskip("huggingface_hub")
    rows = [
        row("a", Question="Name of task a?", Level=1, Final_answer="a"),
        row("b", Question="Name of task b?", Level=2, Final_answer="b"),
    ]
    more = {} if hub is None else {"dataset_hub": hub}
    with (
        chat_server(right_away) as server,
        ModelScopeHub(tmp_path / "modelscope") as modelscope,
        HuggingFaceHub(tmp_path / "huggingface") as huggingface,
    ):
        for name, branch in (("modelscope", "master"), ("huggingface", "main")):
            write_folder(tmp_path / name / "gaia-benchmark" / "GAIA" / branch, rows)
        done = subprocess.run(
            [sys.executable, "-c", EXAMPLE.replace("**MORE", f"**{more}")],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment(
                URL=server.url,
                DASHSCOPE_API_KEY="sk-of-the-guide-0123456789",
                HOME=str(tmp_path / "home"),
                HARNESS_CACHE=os.environ["HARNESS_CACHE"],
                MODELSCOPE_ENDPOINT=modelscope.url,
                MODELSCOPE_CACHE=str(tmp_path / "cache"),
                HF_ENDPOINT=huggingface.url,
                HF_HOME=str(tmp_path / "cache"),
            ),
            check=False,
        )
        asked = {"modelscope": modelscope.asked, "huggingface": huggingface.asked}
        (headers,), (request,) = server.headers, server.requests
    assert done.returncode == 0, done.stderr
    assert {name for name, requests in asked.items() if requests} == {hub or "modelscope"}
    assert (
        "| qwen3-max | gaia-benchmark/GAIA | mean_acc | 2023_level1 |   1 |   1.0 |" in done.stdout
    )
    assert headers["authorization"] == "Bearer sk-of-the-guide-0123456789"
    assert (request["model"], request["temperature"]) == ("qwen3-max", 0.7)
    assert (tmp_path / "cassettes" / "runs").is_dir()


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
