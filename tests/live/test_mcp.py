"""Tool servers through the real SDK: a real one, ours that misbehave, and no process left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError, LackError, ToolServerError, UsageError
from harness.live.mcp import ToolServers
from harness.live.mcp_process import MARK
from harness.mcp_config import MCPServerConfig, MCPServerConfigHTTP, MCPServerConfigStdio
from harness.records import ToolReply
from tests.mcp_servers.http_server import HttpServer

pytest.importorskip("mcp")

ROOT = Path(__file__).parents[2]
STDIO = ROOT / "tests" / "mcp_servers" / "stdio_server.py"
SDK = ROOT / "tests" / "mcp_servers" / "sdk_server.py"
CANARY = "canary-0123456789abcdef"

Servers = Callable[..., ToolServers]

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


# ------------------------------------------------------------------------------ left processes


def alive(tag: str) -> list[str]:
    """Command lines of the processes that have the tag in their environment; no zombies."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if tag.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def gone(tag: str, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while alive(tag):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def tag() -> Iterator[str]:
    """A word for the environment of every server of a test; none may be left after it."""
    word = f"test-{uuid.uuid4().hex}"
    yield word
    assert gone(word), alive(word)


@pytest.fixture
def make(tag: str) -> Iterator[Servers]:
    """Makes groups of servers and closes them after the test."""
    made: list[ToolServers] = []

    def servers(*configs: MCPServerConfig, progress: Any = None) -> ToolServers:
        made.append(ToolServers(configs, progress=progress or (lambda line: None)))
        return made[-1]

    yield servers
    for group in made:
        group.close()


def ours(tag: str, mode: str = "ok", **options: Any) -> MCPServerConfigStdio:
    """A server of ours over standard streams."""
    env = {"TEST_TAG": tag, **options.pop("env", {})}
    given = {"command": sys.executable, "args": [str(STDIO), mode], "name": "s", **options}
    return MCPServerConfigStdio(env=env, **given)


def seconds_for(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


# ----------------------------------------------------------------------------------- the real one


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<html><head><title>Zebras</title></head><body><p>42 stripes</p></body></html>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{http.server_address[1]}/"
    http.shutdown()
    http.server_close()


def test_the_real_fetch_server_reads_a_page(make: Servers, tag: str, web: str) -> None:
    pytest.importorskip("mcp_server_fetch")
    fetch = MCPServerConfigStdio(
        command=sys.executable,
        args=["-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"],
        name="fetch",
        env={"TEST_TAG": tag, "PATH": "/nonexistent"},  # its output depends on node being there
    )
    said: list[str] = []
    servers = make(fetch, progress=said.append)
    (entry,) = servers.list_tools()
    assert (entry["name"], entry["server"]) == ("fetch", "fetch")
    function = entry["schema"]["function"]
    assert function["name"] == "fetch"
    assert function["description"]
    assert function["parameters"]["properties"]["url"]["type"] == "string"
    assert function["parameters"]["required"] == ["url"]
    assert any("fetch" in line for line in said)

    session = servers.open("a")
    page = session.call("fetch", "fetch", {"url": web})
    assert not page.is_error
    assert "42 stripes" in page.content
    refused = session.call("fetch", "fetch", {"url": "http://127.0.0.1:1/"})
    assert refused.is_error
    assert "127.0.0.1:1" in refused.content
    unknown = session.call("fetch", "nonesuch", {})
    assert unknown == ToolReply("Unknown tool: nonesuch (MCP error -32602)", is_error=True)
    session.close()
    assert gone(tag)


def test_a_server_built_with_the_sdk(make: Servers, tag: str) -> None:
    config = ours(tag, args=[str(SDK), "stdio"], call_timeout=1)
    servers = make(config)
    assert [entry["name"] for entry in servers.list_tools()] == ["add", "count", "fail", "slow"]
    session = servers.open("a")
    assert session.call("s", "add", {"a": 1, "b": 2}) == ToolReply("3")
    assert session.call("s", "fail", {}).is_error
    late = session.call("s", "slow", {"seconds": 30})
    assert late == ToolReply("no answer within 1 s; the call was given up", is_error=True)
    assert session.call("s", "count", {}) == ToolReply("1")  # the session is usable


def test_sixteen_samples_at_once(make: Servers, tag: str) -> None:
    servers = make(ours(tag), ours(tag, name="t"))
    barrier = threading.Barrier(16)

    def sample(number: int) -> tuple[str, str, str]:
        session = servers.open(f"sample-{number}")
        barrier.wait(60)
        try:
            texts = [
                session.call("s", "echo", {"text": f"é-{number}"}).content,
                session.call("t", "count", {}).content,
                session.call("t", "count", {}).content,
            ]
        finally:
            session.close()
        return texts[0], texts[1], texts[2]

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(sample, range(16)))
    assert results == [(f"é-{number}", "1", "2") for number in range(16)]
    assert gone(tag)  # sessions were closed by their samples, not by the group


def test_one_session_per_sample_unless_shared(make: Servers, tag: str) -> None:
    servers = make(ours(tag), ours(tag, name="common", shared=True))
    first, second = servers.open("a"), servers.open("b")
    assert alive(tag) == []  # nothing is started before it is needed
    counts = [
        first.call("s", "count", {}).content,
        second.call("s", "count", {}).content,
        first.call("s", "count", {}).content,
    ]
    assert counts == ["1", "1", "2"]
    counts = [session.call("common", "count", {}).content for session in (first, second, first)]
    assert counts == ["1", "2", "3"]
    first.close()
    assert second.call("common", "count", {}).content == "4"


def test_a_shared_server_that_died_is_started_again_for_the_next_sample(
    make: Servers, tag: str
) -> None:
    servers = make(ours(tag, shared=True))
    first = servers.open("a")
    with pytest.raises(ToolServerError, match="exit status 7"):
        first.call("s", "die", {})
    with pytest.raises(ToolServerError):
        first.call("s", "count", {})
    assert servers.open("b").call("s", "count", {}).content == "1"


# ------------------------------------------------------------------------------------- tool lists


def test_tools_are_read_once_and_sorted(make: Servers, tag: str) -> None:
    servers = make(
        ours(tag, name="z", tools=["slow", "echo"]),
        ours(tag, name="a", tools=["fail", "count"], shared=True),
    )
    tools = servers.list_tools()
    assert [(entry["server"], entry["name"]) for entry in tools] == [
        ("a", "count"), ("a", "fail"), ("z", "echo"), ("z", "slow"),
    ]  # fmt: skip
    assert servers.list_tools() is tools
    assert tools[0]["schema"] == {
        "type": "function",
        "function": {
            "name": "count",
            "description": "the tool count",
            "parameters": {"type": "object", "properties": {}},
        },
    }


def test_a_list_in_pages_is_read_whole(make: Servers, tag: str) -> None:
    whole = make(ours(tag)).list_tools()
    assert make(ours(tag, "pages")).list_tools() == whole
    assert len(whole) > 10


def test_what_is_not_on_the_allow_list_cannot_be_called(make: Servers, tag: str) -> None:
    servers = make(ours(tag, tools=["count"]))
    assert [entry["name"] for entry in servers.list_tools()] == ["count"]
    session = servers.open("a")
    refused = session.call("s", "echo", {"text": "x"})
    assert refused == ToolReply("the tool 'echo' is not offered", is_error=True)
    assert alive(tag) == []
    assert session.call("s", "count", {}).content == "1"


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ([{"tools": ["nonesuch"]}], "offers no tool 'nonesuch'"),
        ([{"mode": "bash-name"}], "'bash' of MCP server 's' has the same name"),
        ([{"mode": "dotted-name"}], "'web.search' of MCP server 's' has a name that endpoints"),
        ([{"mode": "nan-schema"}], "'nan' of MCP server 's' has a schema with a number"),
        ([{"name": "a"}, {"name": "b"}], "of MCP server 'b' has the same name"),
    ],
)
def test_names_that_cannot_be_used(
    make: Servers, tag: str, configs: list[dict[str, Any]], said: str
) -> None:
    servers = make(*(ours(tag, **config) for config in configs))
    with pytest.raises(UsageError, match=re.escape(said)):
        servers.list_tools()


def test_a_name_that_cannot_be_used_can_be_left_out(make: Servers, tag: str) -> None:
    servers = make(ours(tag, "bash-name", tools=["count"]), ours(tag, name="t", tools=["echo"]))
    assert [entry["name"] for entry in servers.list_tools()] == ["count", "echo"]


def test_two_servers_of_one_name_are_refused_before_a_start(tag: str) -> None:
    with pytest.raises(UsageError, match="two MCP servers are named 's'"):
        ToolServers([ours(tag), ours(tag)], progress=print)


# ------------------------------------------------------------------------------------- starting


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("silent", ["did not answer `initialize` within 2 s", "waiting for something"]),
        ("exit", ["exit status 3", "no such database: /nowhere"]),
        ("crash", ["signal 11"]),
        ("junk", ["did not answer", "'Welcome to my server!'", "stdout"]),
        ("flood", ["no protocol message"]),
        ("long-line", ["a line of more than 32 MiB"]),
        ("refuse", ["not with you (MCP error -32602)"]),
        ("closes-stdout", ["it closed its stdout"]),
        ("no-list", ["listing its tools failed: unknown method"]),
        ("no-object", ["listing its tools failed: its reply breaks the protocol"]),
        ("endless", ["more than 1000 pages"]),
    ],
)
def test_a_server_that_cannot_be_used_is_named_before_the_run(
    make: Servers, tag: str, mode: str, said: list[str]
) -> None:
    """G01: also for servers that flood, crash, or never answer."""
    patience = 2 if mode in ("silent", "junk") else 60
    servers = make(ours(tag, mode, timeout=patience))
    began = time.monotonic()
    with pytest.raises(LackError) as caught:
        servers.list_tools()
    assert time.monotonic() - began < 30
    assert "MCP server 's' cannot be used" in caught.value.message
    for words in said:
        assert words in caught.value.message
    assert gone(tag)  # without waiting for `close`


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"command": "no-such-command-here"}, "'no-such-command-here' cannot be run"),
        ({"command": "sleep", "args": ["999"], "timeout": 1}, "within 1 s"),
        ({"command": "false", "args": []}, "exit status 1"),
        ({"cwd": "/no/such/folder"}, "its folder '/no/such/folder' cannot be used"),
        ({"args": ["a\0b"]}, "null byte"),
    ],
)
def test_commands_that_are_no_servers(
    make: Servers, tag: str, options: dict[str, Any], said: str
) -> None:
    """G01"""
    with pytest.raises(LackError, match=re.escape(said)):
        make(ours(tag, **options)).list_tools()


def test_all_servers_that_fail_are_named_at_once(make: Servers, tag: str) -> None:
    servers = make(ours(tag), ours(tag, "exit", name="b"), ours(tag, "refuse", name="c"))
    with pytest.raises(LackError) as caught:
        servers.list_tools()
    assert "'b'" in caught.value.message
    assert "'c'" in caught.value.message
    assert "'s'" not in caught.value.message


def test_a_banner_on_stdout_is_forgiven(make: Servers, tag: str) -> None:
    servers = make(ours(tag, "banner"))
    assert servers.list_tools()
    assert servers.open("a").call("s", "chatter", {}) == ToolReply("done")


def test_a_server_that_fails_later_ends_the_sample_only(
    make: Servers, tag: str, tmp_path: Path
) -> None:
    switch = tmp_path / "broken"
    script = f'test -e "{switch}" && {{ echo gone bad >&2; exit 5; }}; exec "$@"'
    args = ["-c", script, "sh", sys.executable, str(STDIO)]
    servers = make(ours(tag, command="sh", args=args))
    servers.list_tools()
    switch.touch()
    with pytest.raises(ToolServerError, match=r"(?s)exit status 5.*gone bad"):
        servers.open("a").call("s", "count", {})
    switch.unlink()
    assert servers.open("b").call("s", "count", {}).content == "1"


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(LackError) as caught:
        ToolServers([], progress=print)
    assert caught.value.hint == "pip install 'gaia-harness[mcp]'"


# --------------------------------------------------------------------------------------- calling

PARTS = """\
before
[image: image/png, 4 bytes, not shown]
[audio: audio/wav, 3 bytes, not shown]
[resource: note://1]
a note
[resource: file:///x.bin, application/zip, 2 bytes, not shown]
[resource: https://example.org/page]
behind"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fail", ToolReply("there is no such page", is_error=True)),
        ("parts", ToolReply(PARTS)),
        ("empty", ToolReply("[no output]")),
        ("structured", ToolReply('{"n": 1, "s": "é"}')),
        ("broken", ToolReply("its reply breaks the protocol", is_error=True)),
        ("refused", ToolReply("not today (MCP error -32000)", is_error=True)),
        ("nonesuch", ToolReply("Unknown tool: nonesuch (MCP error -32602)", is_error=True)),
        ("chatter", ToolReply("done")),
        (
            "odd",
            ToolReply("half � nul \0 escape \x1b[31m pair \U0001f600 line\r\n \u2028 end"),
        ),
    ],
)
def test_what_a_call_gives(make: Servers, tag: str, name: str, expected: ToolReply) -> None:
    session = make(ours(tag)).open("a")
    assert session.call("s", name, {}) == expected
    assert session.call("s", "echo", {"text": "on"}) == ToolReply("on")  # and it goes on


@pytest.mark.parametrize("text", [" ", "a\0b", "\U0001f600 é\u2028", '"}\n{"', "x" * 300_000])
def test_any_text_can_be_sent(make: Servers, tag: str, text: str) -> None:
    assert make(ours(tag)).open("a").call("s", "echo", {"text": text}) == ToolReply(text)


def test_half_of_a_pair_cannot_be_sent(make: Servers, tag: str) -> None:
    session = make(ours(tag)).open("a")
    reply = session.call("s", "echo", {"text": "\ud800"})
    assert reply.is_error
    assert "surrogate" in reply.content
    assert session.call("s", "echo", {"text": "on"}) == ToolReply("on")


def test_a_huge_result_is_cut_and_says_so(make: Servers, tag: str) -> None:
    content = make(ours(tag)).open("a").call("s", "huge", {}).content
    assert len(content) < (1 << 20) + 200
    assert content.startswith("aaa")
    assert "bbb\n[the whole result had 6000001 characters]" in content
    assert f"[... {6_000_002 - (1 << 20)} bytes left out here ...]" in content  # é has two


def test_a_call_that_takes_too_long_is_a_result(make: Servers, tag: str) -> None:
    session = make(ours(tag, call_timeout=1)).open("a")
    began = time.monotonic()
    reply = session.call("s", "slow", {"seconds": 3})
    assert time.monotonic() - began < 20
    assert reply == ToolReply("no answer within 1 s; the call was given up", is_error=True)
    time.sleep(2.5)  # this server does one thing at a time
    assert session.call("s", "echo", {"text": "on"}) == ToolReply("on")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("die", ["it died (exit status 7)", "a bug in line 5"]),
        ("killed", ["it died (signal 9)"]),
        ("mute", ["it closed its stdout"]),
        ("complain", ["the last words"]),
    ],
)
def test_a_server_that_dies_in_a_call_ends_the_sample(
    make: Servers, tag: str, name: str, said: list[str]
) -> None:
    session = make(ours(tag)).open("a")
    assert session.call("s", "count", {}).content == "1"
    with pytest.raises(ToolServerError) as caught:
        session.call("s", name, {})
    for words in ["MCP server 's' failed", *said]:
        assert words in caught.value.message
    assert len(caught.value.message) < 4000  # of the stderr only the end
    with pytest.raises(ToolServerError):
        session.call("s", "count", {})
    assert gone(tag)  # what the server left is gone without `close`


def test_an_unknown_server(make: Servers, tag: str) -> None:
    with pytest.raises(ToolServerError, match="no MCP server 'other'"):
        make(ours(tag)).open("a").call("other", "echo", {})


# ----------------------------------------------------------------------- environment and secrets


def test_a_server_gets_a_small_environment(
    make: Servers, tag: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("SOMETHING_ELSE", "x")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    session = make(ours(tag, env={"MINE": "1"}, cwd=str(tmp_path))).open("a")
    found = json.loads(session.call("s", "environment", {}).content)
    assert CANARY not in json.dumps(found)
    assert "SOMETHING_ELSE" not in found
    assert found["PATH"] == os.environ["PATH"]
    assert (found["MINE"], found["LC_ALL"], found["TEST_TAG"]) == ("1", "C.UTF-8", tag)
    assert MARK in found
    assert session.call("s", "folder", {}).content == str(tmp_path.resolve())


def test_what_a_server_prints_is_not_printed_by_us(tag: str, tmp_path: Path) -> None:
    program = f"""
import sys
from harness.live.mcp import ToolServers
from harness.mcp_config import MCPServerConfigHTTP, MCPServerConfigStdio
from tests.live.test_mcp import ours, over
from tests.mcp_servers.http_server import HttpServer
with HttpServer() as http:
    servers = ToolServers([over(http, "ok")], progress=lambda line: None)
    for name in ("garbage", "cut", "page", "drop"):
        try:
            servers.open(name).call("h", name, {{}})
        except Exception as error:
            pass
    servers.close()
for config in (
    *(ours({tag!r}, mode, timeout=1) for mode in ("exit", "junk", "flood", "silent", "ok")),
    MCPServerConfigHTTP(url="http://127.0.0.1:1/mcp"),
):
    servers = ToolServers([config], progress=lambda line: None)
    try:
        servers.list_tools()
        servers.open("a").call("s", "complain", {{}})
    except Exception as error:
        pass
    servers.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", program], cwd=ROOT, capture_output=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_secrets_do_not_stand_in_messages(make: Servers, tag: str) -> None:
    config = ours(
        tag,
        command="sh",
        args=["-c", 'echo "key is $THE_KEY" >&2; echo "$THE_KEY"; exit 4'],
        env={"THE_KEY": CANARY},
    )
    with pytest.raises(LackError) as caught:
        make(config).list_tools()
    assert "key is [secret removed]" in caught.value.message
    assert CANARY not in str(caught.value)


# ------------------------------------------------------------------------------------- processes


@linux
@pytest.mark.parametrize("mode", ["stubborn", "escaped", "leaves-child"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_nothing_is_left_of_a_server(make: Servers, tag: str, mode: str, wrapped: bool) -> None:
    """G02: a server that ignores the end of its input and SIGTERM, behind a wrapper."""
    command: dict[str, Any] = {"command": sys.executable, "args": [str(STDIO), mode]}
    if wrapped:
        line = f'"{sys.executable}" "{STDIO}" {mode}; echo wrapper >&2'
        command = {"command": "sh", "args": ["-c", line]}
    servers = make(ours(tag, **command))
    session = servers.open("a")
    assert session.call("s", "count", {}).content == "1"
    assert len(alive(tag)) == (3 if wrapped else 2)
    assert seconds_for(session.close) < 15
    assert alive(tag) == []
    session.close()  # again, for nothing


@linux
def test_the_group_ends_all_sessions_at_once(make: Servers, tag: str) -> None:
    """G02: not one after the other, which would take more than 2 s for each."""
    servers = make(*(ours(tag, "stubborn", name=f"s{number}") for number in range(12)))
    session = servers.open("a")
    for number in range(12):
        session.call(f"s{number}", "count", {})
    assert len(alive(tag)) == 24
    assert seconds_for(servers.close) < 20
    assert alive(tag) == []
    with pytest.raises(ToolServerError, match="closed"):
        session.call("s0", "count", {})
    session.close()
    servers.close()


@linux
def test_a_server_whose_environment_was_wiped_is_ended_with_its_group(
    make: Servers, tag: str
) -> None:
    """G02: nothing but the process group tells whose they are."""
    args = ["-i", f"TEST_TAG={tag}", sys.executable, str(STDIO), "stubborn"]
    session = make(ours(tag, command="env", args=args)).open("a")
    assert MARK not in session.call("s", "environment", {}).content
    assert len(alive(tag)) == 2
    session.close()
    assert alive(tag) == []


@linux
@pytest.mark.parametrize("between_calls", [False, True])
def test_the_children_of_a_dead_server_go_at_once(
    make: Servers, tag: str, between_calls: bool
) -> None:
    """G02: they hold its streams open, so that its end cannot be seen there."""
    session = make(ours(tag, "leaves-child")).open("a")
    pid = json.loads(session.call("s", "process", {}).content)
    assert len(alive(tag)) == 2
    if between_calls:
        os.kill(pid, signal.SIGKILL)
        assert gone(tag)
    with pytest.raises(ToolServerError, match=r"signal 9" if between_calls else "exit status 7"):
        session.call("s", "die", {})
    assert gone(tag)


@linux
def test_nothing_is_left_of_a_start_that_failed(make: Servers, tag: str) -> None:
    """G02: a wrapper whose child never answers and ignores SIGTERM."""
    child = "trap '' TERM; while :; do sleep 1; done"
    servers = make(ours(tag, command="sh", args=["-c", f'sh -c "{child}"; true'], timeout=1))
    with pytest.raises(LackError):
        servers.list_tools()
    assert alive(tag) == []


def test_a_session_that_is_closed_while_it_starts(make: Servers, tag: str) -> None:
    servers = make(
        ours(tag, command="sh", args=["-c", f'sleep 2; exec "{sys.executable}" "{STDIO}"'])
    )
    session = servers.open("a")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(session.call, "s", "count", {})
        deadline = time.monotonic() + 30
        while not alive(tag) and time.monotonic() < deadline:
            time.sleep(0.05)
        session.close()
        with pytest.raises(ToolServerError, match="closed"):
            call.result(60)
    assert gone(tag)


def test_closing_frees_the_threads_that_wait(make: Servers, tag: str) -> None:
    """Ctrl-C: the main thread closes everything while samples are in calls and in starts."""
    servers = make(ours(tag), ours(tag, "silent", name="slow-start"))
    errors: list[HarnessError] = []

    def sample(server: str) -> None:
        try:
            servers.open("a").call(server, "slow", {"seconds": 600})
        except HarnessError as error:
            errors.append(error)

    threads = [threading.Thread(target=sample, args=(name,)) for name in ("s", "slow-start")]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30
    while len(alive(tag)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    servers.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert [type(error) for error in errors] == [ToolServerError, ToolServerError]
    assert alive(tag) == []


@linux
@pytest.mark.parametrize(
    ("mode", "number"),
    [
        ("stubborn", signal.SIGINT),
        ("silent", signal.SIGINT),  # while it is being started
        ("ok", signal.SIGKILL),  # then nothing but the end of its input tells the server
    ],
)
def test_nothing_is_left_when_the_harness_is_stopped(
    tag: str, mode: str, number: signal.Signals
) -> None:
    """G02: after Ctrl-C, even where nobody calls `close`."""
    program = f"""
import sys, time
from harness.live.mcp import ToolServers
from tests.live.test_mcp import ours
servers = ToolServers([ours({tag!r}, {mode!r})], progress=lambda line: print(line, flush=True))
if {mode!r} == "silent":
    servers.list_tools()
servers.open("a").call("s", "count", {{}})
print("ready", flush=True)
time.sleep(600)
"""
    harness = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    try:
        assert harness.stdout is not None
        line = harness.stdout.readline()
        assert line == ("MCP: asking s for tools\n" if mode == "silent" else "ready\n")
        deadline = time.monotonic() + 30
        while not alive(tag) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert alive(tag)
        harness.send_signal(number)
        harness.wait(30)
        assert gone(tag), alive(tag)
    finally:
        harness.kill()
        harness.wait()


def test_no_thread_is_left(make: Servers, tag: str) -> None:
    servers = make(ours(tag))
    servers.list_tools()
    assert any(thread.name == "mcp" for thread in threading.enumerate())
    servers.close()
    assert not any(thread.name == "mcp" for thread in threading.enumerate())


def test_closing_what_was_never_used(make: Servers, tag: str) -> None:
    servers = make(ours(tag))
    session = servers.open("a")
    session.close()
    servers.close()
    with pytest.raises(ToolServerError, match="closed"):
        session.call("s", "count", {})


# ------------------------------------------------------------------------------------------ HTTP


@pytest.fixture
def http() -> Iterator[HttpServer]:
    with HttpServer() as server:
        yield server


def over(http: HttpServer, path: str, **options: Any) -> MCPServerConfigHTTP:
    return MCPServerConfigHTTP(url=http.url(path), **{"name": "h", "timeout": 30, **options})


@pytest.mark.parametrize("path", ["ok", "sse"])
def test_a_server_over_http(make: Servers, http: HttpServer, path: str) -> None:
    servers = make(over(http, path, headers={"X-Api-Key": CANARY}))
    assert len(servers.list_tools()) > 10
    session = servers.open("a")
    assert session.call("h", "hello", {}) == ToolReply("hello")
    assert session.call("h", "fail", {}) == ToolReply("there is no such page", is_error=True)
    assert session.call("h", "parts", {}) == ToolReply(PARTS)
    huge = session.call("h", "huge", {}).content
    assert huge.endswith("[the whole result had 3000000 characters]")
    assert json.loads(session.call("h", "headers", {}).content)["x-api-key"] == CANARY
    assert len(http.sessions) == 2  # one for the tools, one for the sample
    session.close()
    assert sorted(http.deleted) == sorted(http.sessions)


def test_a_server_on_this_machine_is_reached_without_a_proxy(
    make: Servers, http: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert make(over(http, "ok")).open("a").call("h", "hello", {}) == ToolReply("hello")


def test_a_real_server_over_http(make: Servers, tag: str) -> None:
    with HttpServer() as free:
        port = int(free.url("").split(":")[2].strip("/"))
    server = subprocess.Popen(
        [sys.executable, str(SDK), "http", str(port)],
        env={**os.environ, "TEST_TAG": tag},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        deadline = time.monotonic() + 60
        while True:
            servers = make(MCPServerConfigHTTP(url=url, name="h", call_timeout=1))
            try:
                servers.list_tools()
                break
            except LackError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        session = servers.open("a")
        assert session.call("h", "add", {"a": 1, "b": 2}) == ToolReply("3")
        assert session.call("h", "slow", {"seconds": 30}).is_error
        assert session.call("h", "add", {"a": 2, "b": 2}) == ToolReply("4")
        server.kill()
        server.wait()
        with pytest.raises(ToolServerError, match="the connection failed"):
            session.call("h", "add", {"a": 1, "b": 2})
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("unauthorized", "HTTP status 401"),
        ("missing", "HTTP status 404"),
        ("broken", "HTTP status 500"),
        ("page", "text/html"),
        ("garbage", "breaks the protocol"),
        ("accepted", "202"),
        ("away", "http://localhost:1/elsewhere"),
        ("refuse", "not with you"),
        ("silent", "did not answer `initialize` within 1 s"),
    ],
)
def test_addresses_that_are_no_servers(
    make: Servers, http: HttpServer, path: str, said: str
) -> None:
    """G01"""
    servers = make(over(http, path, timeout=1 if path == "silent" else 30))
    with pytest.raises(LackError) as caught:
        servers.list_tools()
    assert said in caught.value.message
    assert "MCP server 'h' cannot be used" in caught.value.message


def test_an_address_where_nobody_listens(make: Servers) -> None:
    """G01: a nested ExceptionGroup in the SDK."""
    servers = make(MCPServerConfigHTTP(url=f"http://127.0.0.1:1/mcp?key={CANARY}", name="h"))
    with pytest.raises(LackError) as caught:
        servers.list_tools()
    assert "the connection failed" in caught.value.message
    assert "http://127.0.0.1:1/mcp?key=[secret]" in caught.value.message
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("path", ["ok", "sse"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("status500", "HTTP status 500"),
        ("garbage", "its reply breaks the protocol"),
        ("odd", "its reply breaks the protocol"),
        ("page", "text/html"),
        ("cut", "ended without a response"),
        ("refused", "not today (MCP error -32000)"),
        ("nonesuch", "Unknown tool: nonesuch"),
        ("slow", "no answer within 1 s"),
    ],
)
def test_failures_over_http_that_the_model_sees(
    make: Servers, http: HttpServer, path: str, name: str, said: str
) -> None:
    session = make(over(http, path, call_timeout=1 if name == "slow" else 30)).open("a")
    arguments = {"seconds": 5} if name == "slow" else {}
    reply = session.call("h", name, arguments)
    assert reply.is_error
    assert said in reply.content
    assert session.call("h", "hello", {}) == ToolReply("hello")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("drop", "the connection failed"),
        ("half", "the connection failed"),
        ("stop", "the connection failed"),
        ("forget", "HTTP status 404"),
    ],
)
def test_failures_over_http_that_end_the_sample(
    make: Servers, http: HttpServer, name: str, said: str
) -> None:
    session = make(over(http, "ok")).open("a")
    assert session.call("h", "hello", {}) == ToolReply("hello")
    with pytest.raises(ToolServerError, match=f"MCP server 'h' failed: .*{said}"):
        session.call("h", name, {})
    with pytest.raises(ToolServerError):
        session.call("h", "hello", {})


def test_a_connection_that_the_server_gave_up_meanwhile(make: Servers, http: HttpServer) -> None:
    session = make(over(http, "ok")).open("a")
    for _ in range(3):
        assert session.call("h", "leave", {}) == ToolReply("bye")
        time.sleep(0.2)
