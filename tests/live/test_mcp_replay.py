"""A run with tools of MCP servers, replayed where neither server nor SDK nor client exist."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.base_install import base_folder, base_python
from tests.live.chat_server import call, chat_server, says
from tests.live.line import ROOT, harness, offline, samples
from tests.scripted import dataset

pytest.importorskip("mcp")

MISSING = ("mcp", "mcp_server_fetch", "openai", "docker", "httpx", "pydantic", "anyio")


def adds(request: dict[str, Any]) -> dict[str, Any]:
    """Calls `add`, then `fail`, and submits what the first one gave."""
    results = [m["content"] for m in request["messages"] if m["role"] == "tool"]
    if not results:
        return says("I add.", call("add", a=19, b=23), call("fail", id="call_2"))
    return says("Done.", call("submit", answer=results[0]))


def test_replayed_with_no_mcp_package_and_no_server(tmp_path: Path) -> None:
    """The tape is enough: the server's script is gone, its command would leave a mark."""
    dataset(tmp_path / "data", [("a", 1, "42"), ("b", 2, "41")])
    script, mark = tmp_path / "server.py", tmp_path / "started"
    shutil.copy(ROOT / "tests" / "mcp_servers" / "sdk_server.py", script)
    start = f"echo started >>{mark}; exec {sys.executable} {script} stdio"
    servers = {"mcpServers": {"sums": {"command": "sh", "args": ["-c", start]}}}
    (tmp_path / "servers.json").write_text(json.dumps(servers))
    with chat_server(adds) as server:
        recorded = harness(
            "record", "--run", "r", "--store", str(tmp_path / "st"), "--json",
            "--dataset", str(tmp_path / "data"), "--model", "m", "--api-url", server.url,
            "--sandbox", "local", "--mcp", str(tmp_path / "servers.json"), cwd=tmp_path,
        )  # fmt: skip
        assert recorded.returncode == 0, recorded.stderr
        names = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
    assert names == ["bash", "submit", "add", "count", "fail", "slow"]
    before = samples(recorded.stdout)
    assert {id: (s["answer"], s["verdict"]) for (id, _), s in before.items()} == {
        "a": ("42", "right"),
        "b": ("42", "wrong"),
    }
    starts = mark.read_text().count("started")
    assert starts >= 2  # one session per sample, and one that lists the tools

    script.unlink()
    base = base_folder(tmp_path / "base")
    absent = "import importlib.util as u, sys; sys.exit(any(map(u.find_spec, sys.argv[1:])))"
    assert base_python(base, "-c", absent, *MISSING).returncode == 0
    live = {"HOME": str(tmp_path / "nowhere"), "PATH": "/nonexistent", **offline(tmp_path)}
    replayed = base_python(
        base, "-m", "harness", "replay", "r", "--store", "st", "--json", "--dataset", "data",
        cwd=tmp_path, variables=live,
    )  # fmt: skip
    assert replayed.returncode == 0, replayed.stderr
    after = samples(replayed.stdout)
    for key, sample in before.items():
        assert after[key]["identical"] is True
        assert after[key]["trajectory"] == sample["trajectory"]
        assert after[key]["verdict"] == sample["verdict"]
        assert after[key]["verdict_source"] == "scored"
    for args in (["verify", "r"], ["score", "r", "--dataset", "data"], ["show", "r", "a"]):
        done = base_python(
            base, "-m", "harness", *args, "--store", "st", cwd=tmp_path, variables=live
        )
        assert done.returncode == 0, done.stderr
    assert "2 tool calls" in done.stdout  # the last one: the transcript
    assert mark.read_text().count("started") == starts
