"""Configurations of tool servers, the `--mcp` file, and what may be kept of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import canonical
from harness.errors import UsageError
from harness.mcp_config import (
    MCPServerConfigHTTP,
    MCPServerConfigStdio,
    check_names,
    read_mcp_file,
    secrets,
    to_settings,
)

CANARY = "canary-0123456789abcdef"
DOC = Path(__file__).parents[1] / "docs" / "mcp.md"


def stdio(**options: Any) -> MCPServerConfigStdio:
    return MCPServerConfigStdio(**{"command": "server", "name": "s", **options})


def http(**options: Any) -> MCPServerConfigHTTP:
    return MCPServerConfigHTTP(**{"url": "https://example.org/mcp", "name": "h", **options})


def read(tmp_path: Path, data: Any) -> list[Any]:
    path = tmp_path / "mcp.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), "utf-8")
    return list(read_mcp_file(path))


# ------------------------------------------------------------------------------------- in Python


def test_the_guides_example() -> None:
    config = MCPServerConfigStdio(
        command=sys.executable, args=["-m", "mcp_server_fetch", "--ignore-robots-txt"], name="fetch"
    )
    assert config.command == sys.executable
    assert list(config.args) == ["-m", "mcp_server_fetch", "--ignore-robots-txt"]
    assert (config.tools, config.shared, config.rehydrate) == (None, False, False)


def test_words_of_other_harnesses_are_understood() -> None:
    assert stdio(type="stdio", tools="all").tools is None
    assert http(type="http", tools=["a"]).tools == ["a"]
    assert MCPServerConfigStdio(command="/opt/bin/my-server").name == "my-server"
    assert MCPServerConfigHTTP(url="https://tools.example.org:8443/mcp").name == "tools.example.org"


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(AttributeError):
        stdio().command = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: stdio(comand="x"), "did you mean 'command'"),
        (lambda: http(header={"a": "b"}), "did you mean 'headers'"),
        (lambda: http(args=[]), "no option 'args'"),
        (lambda: stdio(args="-m x"), "args must be a list of texts"),
        (lambda: stdio(args=["-n", 3]), "args must be a list of texts"),
        (lambda: stdio(command=""), "command must be"),
        (lambda: stdio(env={"A": 1}), "env must be texts only"),
        (lambda: stdio(env=None), "env must be"),
        (lambda: stdio(tools="fetch"), "tools must be a list of names"),
        (lambda: stdio(name="a\nb"), "name must be"),
        (lambda: stdio(timeout=0), "timeout must be a positive number"),
        (lambda: stdio(timeout=float("nan")), "timeout must be a positive number"),
        (lambda: stdio(call_timeout=True), "call_timeout must be a positive number"),
        (lambda: stdio(timeout=60_000), "milliseconds"),
        (lambda: stdio(shared="yes"), "shared must be true or false"),
        (lambda: stdio(secrets=["TOKEM"], env={"TOKEN": "x"}), "did you mean 'TOKEN'"),
        (lambda: http(headers={"X-Key": "abc\n"}), "line break"),
        (lambda: http(url="example.org/mcp"), "url must be an http"),
        (lambda: http(type="sse"), "type must be 'http'"),
    ],
)
def test_what_cannot_be_used_is_named(make: Any, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        make()


def test_two_servers_of_one_name_are_refused() -> None:
    check_names([stdio(name="a"), http(name="b")])
    with pytest.raises(UsageError, match="two MCP servers are named 'a'"):
        check_names([stdio(name="a"), http(name="a")])


# -------------------------------------------------------------------------------------- secrets


@pytest.mark.parametrize(
    "config",
    [
        stdio(env={"BRAVE_API_KEY": CANARY}),
        stdio(env={"GITHUB_PERSONAL_ACCESS_TOKEN": CANARY}),
        stdio(env={"DB_PASSWORD": CANARY}),
        stdio(env={"CLIENT_SECRET": CANARY}),
        stdio(env={"WHO": CANARY}, secrets=["WHO"]),
        stdio(args=["--api-key", CANARY]),
        stdio(args=[f"--api-key={CANARY}"]),
        stdio(args=["run", "-e", f"SLACK_TOKEN={CANARY}", "image"]),
        stdio(args=["--header", f"Authorization: Bearer {CANARY}"]),
        stdio(args=[f"--header=X-Api-Key: {CANARY}"]),
        stdio(args=["--config", json.dumps({"braveApiKey": CANARY, "limit": 5})]),
        stdio(args=["mcp-remote", f"https://example.org/mcp?apiKey={CANARY}&x=1"]),
        stdio(args=[f"postgresql://me:{CANARY}@localhost/db"]),
        stdio(args=["-c", f"API_TOKEN={CANARY} exec server --port 80"]),
        stdio(command=f"/opt/{CANARY}/server", hidden=[CANARY]),
        http(headers={"Authorization": f"Bearer {CANARY}"}),
        http(headers={"AUTHORIZATION": f"Basic {'bWU6Y2FuYXJ5LTAxMjM0NTY3ODlhYmNkZWY='}"}),
        http(headers={"X-Api-Key": CANARY}),
        http(headers={"Cookie": f"session={CANARY}; theme=dark"}),
        http(headers={"X-Team": CANARY}, secrets=["X-Team"]),
        http(url=f"https://example.org/mcp?tavilyApiKey={CANARY}"),
        http(url=f"https://me:{CANARY}@example.org/mcp"),
        http(url=f"https://example.org/s/{CANARY}/mcp", hidden=[CANARY]),
    ],
)
def test_a_secret_is_found_and_never_kept(
    config: MCPServerConfigStdio | MCPServerConfigHTTP,
) -> None:
    assert CANARY in secrets(config)
    assert CANARY not in json.dumps(to_settings(config))
    assert CANARY not in repr(config)


@pytest.mark.parametrize(
    "config",
    [
        stdio(env={"LANG": "C.UTF-8", "TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "500"}),
        stdio(args=["--max-tokens", "500", "--auth", "none", "--port", "8000"]),
        stdio(args=["-m", "mcp_server_fetch", "--ignore-robots-txt"]),
        stdio(args=["--max-tokens=500", json.dumps({"maxTokens": 500}), "AUTH=none"]),
        stdio(args=["https://auth.example.org:8443/mcp"]),
        http(url="https://tokens.example.org/mcp?page=2", headers={"Accept-Language": "de"}),
    ],
)
def test_what_is_no_secret_is_kept_as_it_is(
    config: MCPServerConfigStdio | MCPServerConfigHTTP,
) -> None:
    assert secrets(config) == []
    kept = to_settings(config)
    if isinstance(config, MCPServerConfigStdio):
        assert kept["args"] == list(config.args)
    else:
        assert kept["url"] == config.url


def test_what_a_run_file_keeps_of_a_command() -> None:
    config = stdio(
        args=["--token", CANARY, "--mode=fast"],
        env={"B_KEY": CANARY, "A": "1"},
        tools=["b", "a"],
        cwd="/srv",
        timeout=5,
        call_timeout=7,
        shared=True,
        rehydrate=True,
    )
    assert to_settings(config) == {
        "name": "s",
        "type": "stdio",
        "command": "server",
        "args": ["--token", "[secret]", "--mode=fast"],
        "cwd": "/srv",
        "env": ["A", "B_KEY"],
        "tools": ["a", "b"],
        "call_timeout": 7.0,
        "shared": True,
    }
    canonical.dumps(to_settings(config))  # it can be written


def test_what_a_run_file_keeps_of_an_address() -> None:
    config = http(url=f"https://example.org/mcp?key={CANARY}&x=1", headers={"X-Api-Key": CANARY})
    assert to_settings(config) == {
        "name": "h",
        "type": "http",
        "url": "https://example.org/mcp?key=[secret]&x=1",
        "headers": ["X-Api-Key"],
        "tools": None,
        "call_timeout": 120.0,
        "shared": False,
    }


def test_another_secret_makes_no_other_settings() -> None:
    """A key that was renewed must not stop a run from being continued."""
    old, new = (stdio(args=["--api-key", key], env={"KEY": key}) for key in (CANARY, "other" * 5))
    assert to_settings(old) == to_settings(new)


def test_url_encoded_secrets_are_known_in_both_spellings() -> None:
    found = secrets(http(url="https://example.org/mcp?key=ab%2Fcd%2Fef%2Fgh"))
    assert {"ab/cd/ef/gh", "ab%2Fcd%2Fef%2Fgh"} <= set(found)


# ------------------------------------------------------------------------------------- the file


def test_the_usual_shape_is_read(tmp_path: Path) -> None:
    configs = read(
        tmp_path,
        {
            "mcpServers": {
                "fetch": {
                    "command": "uvx",
                    "args": ["mcp-server-fetch"],
                    "env": {"A": "b"},
                    "description": "web pages",
                    "autoApprove": [],
                },
                "search": {"type": "http", "url": "https://example.org/mcp", "headers": {"x": "y"}},
                "old": {"command": "nothing", "disabled": True},
            }
        },
    )
    assert [type(config).__name__ for config in configs] == [
        "MCPServerConfigStdio",
        "MCPServerConfigHTTP",
    ]
    first, second = configs
    assert (first.name, first.command, list(first.args), first.env) == (
        "fetch", "uvx", ["mcp-server-fetch"], {"A": "b"},
    )  # fmt: skip
    assert (second.name, second.url, second.headers) == (
        "search", "https://example.org/mcp", {"x": "y"},
    )  # fmt: skip


def test_our_own_shape_is_read(tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = [
        {
            "name": "fetch",
            "command": "fetch",
            "tools": ["fetch"],
            "timeout": 5,
            "call_timeout": 6.5,
            "shared": True,
            "rehydrate": True,
            "cwd": "/srv",
            "env": {"WHO": "me"},
            "secrets": ["WHO"],
        },
        {"name": "web", "url": "http://localhost:8000/mcp", "type": "streamable-http"},
    ]
    first, second = read(tmp_path, entries)
    for key, value in entries[0].items():
        assert getattr(first, key) == value
    assert second.type == "http"
    assert read(tmp_path, []) == read(tmp_path, {}) == read(tmp_path, {"mcpServers": {}}) == []


def test_variables_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", CANARY)
    monkeypatch.setenv("WHERE", "/srv")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("UNSET", raising=False)
    first, second = read(
        tmp_path,
        {
            "mcpServers": {
                "a": {
                    "command": "${WHERE}/server",
                    "args": ["${MY_TOKEN}", "${UNSET:-x y}", "${EMPTY:-e}", "${EMPTY}", "$WHERE"],
                    "env": {"T": "${env:MY_TOKEN}"},
                    "cwd": "${WHERE}",
                },
                "b": {
                    "url": "https://example.org/${MY_TOKEN}/mcp",
                    "headers": {"X": "a ${MY_TOKEN}"},
                },
            }
        },
    )
    assert first.command == "/srv/server"
    assert list(first.args) == [CANARY, "x y", "e", "", "$WHERE"]
    assert first.env == {"T": CANARY}
    assert first.cwd == "/srv"
    assert second.headers == {"X": f"a {CANARY}"}
    # a value that came from a variable with a secret's name is a secret wherever it stands
    for config in (first, second):
        assert CANARY in secrets(config)
        assert CANARY not in json.dumps(to_settings(config))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            {"mcpServer": {}},
            "unknown key 'mcpServer' in the top level (did you mean 'mcpServers'?)",
        ),
        ({"servers": {"a": {"command": "x"}}}, "did you mean 'mcpServers'"),
        (
            {"mcpServers": {"a": {"command": "x", "arg": []}}},
            "unknown key 'arg' in mcpServers.a (did you mean 'args'?)",
        ),
        ({"mcpServers": {"a": {"command": "x", "hidden": []}}}, "unknown key 'hidden'"),
        ({"mcpServers": {"a": {"command": "x", "name": "b"}}}, "unknown key 'name'"),
        ({"mcpServers": {"a": {"command": "x", "headers": {}}}}, "unknown key 'headers'"),
        ({"mcpServers": {"a": {"args": []}}}, "mcpServers.a needs either command or url"),
        ({"mcpServers": {"a": {"command": "x", "url": "y"}}}, "needs either command or url"),
        ({"mcpServers": {"a": {"url": "http://x/sse", "type": "sse"}}}, "SSE is not supported"),
        ({"mcpServers": {"a": {"command": "x", "type": "http"}}}, "type must be 'stdio'"),
        ({"mcpServers": {"a": {"command": "x", "timeout": 60000}}}, "milliseconds"),
        ({"mcpServers": {"a": {"command": "x", "args": [1]}}}, "args must be a list of texts"),
        ({"mcpServers": {"a": {"command": 5}}}, "command must be"),
        ({"mcpServers": {"a": "x"}}, "mcpServers.a must be an object"),
        ({"mcpServers": []}, "mcpServers must be an object"),
        (
            '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}',
            "'a' stands twice",
        ),
        ([{"name": "a", "command": "x"}, {"name": "a", "url": "http://x"}], "two MCP servers"),
        ([{"command": "x"}], "entry 1 has no name"),
        ([{"name": "", "command": "x"}], "entry 1 has no name"),
        ("7", "must hold"),
        ('{"mcpServers": {', "is no JSON: "),
        ("[" * 100_000, "is no JSON"),
        (
            [{"name": "a", "command": "x", "args": ["-k", "${NOT_SET_AT_ALL}"]}],
            "entry 1.args[1]: the variable NOT_SET_AT_ALL is not set",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_place(
    tmp_path: Path, data: Any, said: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        read(tmp_path, data)
    assert "mcp.json" in caught.value.message


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.json cannot be read"):
        read_mcp_file(tmp_path / "nothing.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe[")
    with pytest.raises(UsageError, match=r"binary\.json is no JSON"):
        read_mcp_file(tmp_path / "binary.json")


# --------------------------------------------------------------------------------------- the rest


def test_reading_configurations_loads_no_sdk() -> None:
    program = (
        "import sys; from harness import MCPServerConfigStdio; import harness.mcp_config; "
        "bad = {'mcp', 'pydantic', 'httpx', 'httpx2', 'anyio', 'asyncio'} & set(sys.modules); "
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOC.read_text("utf-8"), re.M | re.S)


def test_the_files_in_the_docs_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_TOKEN", CANARY)
    blocks = _blocks("json")
    assert len(blocks) >= 2
    for block in blocks:
        assert read(tmp_path, block)


def test_the_python_in_the_docs_runs() -> None:
    blocks = _blocks("python")
    assert blocks
    for block in blocks:
        exec(compile(block, str(DOC), "exec"), {})
