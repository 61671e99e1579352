"""The whole line with a real model, end to end: recorded through a server and an engine of our own,
replayed when both are gone. What a small model says is what it is: only shapes are asserted.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.live.docker_client import Client
from tests.live.conftest import ROOT, own_engine, unavailable
from tests.live.line import harness, samples

pytestmark = pytest.mark.llm

TASKS = (
    "0fc54604-e3a1-53a1-85fb-d560276743b9",
    "e7740b84-eac2-5af2-93be-540010a590be",
    "06570f25-ea15-53ee-9264-6ad5a1eb6610",
)


@contextmanager
def own_server() -> Iterator[str]:
    """A model server beside the one that other tests use: its URL."""
    environment = {**os.environ, "HARNESS_LLAMA_NAME": f"test-{uuid.uuid4().hex}"}
    script = str(ROOT / "scripts" / "llama-server")
    started = subprocess.run(
        [script, "start"], env=environment, capture_output=True, text=True, check=False
    )
    if started.returncode:
        unavailable(f"no model server: {started.stderr}")
    try:
        yield started.stdout.strip()
    finally:
        subprocess.run([script, "stop"], env=environment, capture_output=True, check=False)


@pytest.mark.parametrize("stream", ["false", "true"])
def test_three_samples_of_a_real_model(
    tmp_path_factory: pytest.TempPathFactory, docker_client: Client, tiny_image: str, stream: str
) -> None:
    if not os.environ.get("HARNESS_LLM_URL"):
        unavailable("HARNESS_LLM_URL is not set; scripts/llama-server start prints it")
    tmp_path, engine = tmp_path_factory.mktemp("real"), tmp_path_factory.mktemp("engine")
    store, template = tmp_path / "store", tmp_path / "template"
    template.write_text("{question}\n{file}\n")
    chosen = [part for task in TASKS for part in ("--task-id", task)]
    # the model calls no tool by itself: the endpoint is told to have `bash` called at every turn
    tool = '{"tool_choice": {"type": "function", "function": {"name": "bash"}}}'
    with own_server() as url, own_engine(engine, docker_client, tiny_image) as socket:
        variables = {"DOCKER_HOST": f"unix://{socket}"}
        recorded = harness(
            "record", "--run", "real", "--store", str(store), "--dataset", "mini", *chosen,
            "--model", "smollm2", "--api-url", url, "--docker-image", tiny_image, "--no-network",
            "--prompt-template", str(template), "--max-steps", "2", "--max-output-chars", "600",
            "--command-timeout", "20", "-g", "temperature=0", "-g", "max_tokens=48",
            "-g", f"stream={stream}", "-g", f"extra_body={tool}", "-g", "timeout=300",
            "--ignore-errors", "--json", timeout=900, variables=variables,
        )  # fmt: skip
        assert recorded.returncode == 0, recorded.stderr
    before = samples(recorded.stdout)
    assert {task for task, _ in before} == set(TASKS)
    for sample in before.values():
        assert sample["verdict"] in ("right", "wrong", "no_answer", "context_exceeded"), sample
        assert sample["steps"] >= 1
        if stream == "false":  # this server counts no tokens in a stream
            assert sample["usage"]["output_tokens"] > 0
    replayed = harness("replay", "real", "--store", str(store), "--json", cwd=tmp_path,
                       variables=variables)  # fmt: skip
    assert replayed.returncode == 0, replayed.stderr
    for key, sample in samples(replayed.stdout).items():
        assert sample["identical"] is True
        for field in ("trajectory", "answer", "verdict", "usage", "steps"):
            assert sample[field] == before[key][field], field
    shown = harness("show", "real", TASKS[0], "--store", str(store), variables=variables)
    assert shown.returncode == 0
    assert "bash" in shown.stdout
