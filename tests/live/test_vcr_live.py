"""vcrpy and pytest-recording with cassettes in a store of ours: recorded for real, server gone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import names
from harness.interop.vcr import persister
from harness.store import Store, object_path
from tests.live.line import ROOT, Policy, environment, harness, policy

vcr = pytest.importorskip("vcr")
openai = pytest.importorskip("openai")

KEY = "sk-canary-0123456789abcdef"


@pytest.fixture(scope="module")
def question() -> str:
    """One that the scripted policy knows."""
    data = (ROOT / "harness" / "data").rglob("metadata.jsonl")
    return str(json.loads(next(data).read_text().splitlines()[0])["Question"])


def ask(base: str, question: str, *, stream: bool = False) -> list[Any]:
    """What the plain SDK makes of it: a message, or all its pieces."""
    client = openai.OpenAI(base_url=base, api_key=KEY, max_retries=0)
    reply = client.chat.completions.create(
        model="scripted-policy", messages=[{"role": "user", "content": question}], stream=stream
    )
    found = list(reply) if stream else [reply]
    return [piece.to_dict() for piece in found]


@pytest.mark.parametrize("stream", [False, True])
def test_recorded_from_a_server_played_without_one(
    tmp_path: Path, question: str, stream: bool
) -> None:
    my_vcr = vcr.VCR(record_mode="once", filter_headers=["authorization"])
    my_vcr.register_persister(persister(tmp_path / "st", tmp_path))
    with policy(tmp_path / "server") as server:
        base = f"{server.url}/v1"
        with my_vcr.use_cassette("tests/one.yaml"):
            before = ask(base, question, stream=stream)
    with my_vcr.use_cassette("tests/one.yaml", record_mode="none"):
        assert ask(base, question, stream=stream) == before
    for path in (tmp_path / "st").rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes()
    for command in ("verify", "gc"):
        done = harness(command, "--store", str(tmp_path / "st"))
        assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 objects")
    with my_vcr.use_cassette("tests/one.yaml", record_mode="none"):
        assert ask(base, question, stream=stream) == before


def pytest_run(folder: Path, question: str, base: str, *args: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *args],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(BASE_URL=base, QUESTION=question),
        timeout=120,
        check=False,
    )


def test_the_documented_example_of_pytest_recording(tmp_path: Path, question: str) -> None:
    """As docs/wire.md has it: recorded once, then played from the store, damage an error."""
    pytest.importorskip("pytest_recording")
    text = (ROOT / "docs" / "wire.md").read_text()
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.S):
        (tmp_path / name).write_text(code)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["conftest.py", "test_hello.py"]
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    with policy(tmp_path / "server") as server:
        base = f"{server.url}/v1"
        done = pytest_run(tmp_path, question, base, "--record-mode=once")
        assert done.returncode == 0, done.stdout
        assert _served(server) == 1
        done = pytest_run(tmp_path, question, base, "--record-mode=once")
        assert _served(server) == 1
    done = pytest_run(tmp_path, question, base, "--block-network")
    assert done.returncode == 0, done.stdout
    store = Store(tmp_path / "cassettes")
    (found,) = names.everything(store)
    assert found.name == "cassettes/test_hello/test_hello.yaml"
    path = tmp_path / "cassettes" / object_path(found.object)
    path.write_bytes(path.read_bytes().replace(b"POST", b"PAST"))
    done = pytest_run(tmp_path, question, base, "--record-mode=once")
    assert done.returncode == 1
    assert "is damaged" in done.stdout


def _served(server: Policy) -> int:
    return server.completions()


def test_an_exported_cassette_is_one_of_pytest_recording(tmp_path: Path) -> None:
    """`harness export` beside a test: the committed demo run, played by pytest-recording."""
    pytest.importorskip("pytest_recording")
    place = tmp_path / "cassettes" / "test_demo"
    done = harness("export", "demo", "--format", "vcr", "-o", str(place))
    assert done.returncode == 0, done.stderr
    name = sorted(path.name for path in place.iterdir())[0]
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_demo.py").write_text(
        f"""
import json, pathlib, openai, pytest, yaml

PATH = pathlib.Path(__file__).parent / "cassettes" / "test_demo" / {name!r}

@pytest.mark.vcr
@pytest.mark.default_cassette({name!r})
def test_demo(vcr):
    for interaction in yaml.safe_load(PATH.read_text())["interactions"]:
        asked = interaction["request"]
        base = asked["uri"].removesuffix("/chat/completions")
        client = openai.OpenAI(base_url=base, api_key="none", max_retries=0)
        reply = client.chat.completions.create(**json.loads(asked["body"]))
        assert (list(reply)[0] if hasattr(reply, "response") else reply).id
    assert vcr.all_played
"""
    )
    done = pytest_run(tmp_path, "", "", "--block-network")
    assert done.returncode == 0, done.stdout
