"""Which MCP servers a run uses: as given in Python or in an `--mcp` file, and what may be kept.

Nothing here starts a server or imports the SDK. A run file keeps what `to_settings` gives: names
of variables and headers without their values, and no value whose name says that it is a secret.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec

from harness.errors import UsageError
from harness.mcp_secrets import MARK, hide, hide_arguments, is_secret, parts

if TYPE_CHECKING:
    from msgspec import StructMeta
else:
    StructMeta = type(msgspec.Struct)

START_TIMEOUT = 60.0
"""Seconds that a server has for starting and for listing its tools."""
CALL_TIMEOUT = 120.0
"""Seconds that a server has for one call."""
LONGEST_TIMEOUT = 3600.0
"""Beyond that a timeout was surely meant in milliseconds, as some clients count."""


class _Checked(StructMeta):
    """An unknown keyword is a UsageError that names the nearest known one."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        for key in options:
            if key not in cls.__struct_fields__:
                known = [field for field in cls.__struct_fields__ if field != "hidden"]
                raise UsageError(f"{cls.__name__} has no option {key!r}{_near(key, known)}")
        return super().__call__(*args, **options)


class _Server(msgspec.Struct, frozen=True, kw_only=True, metaclass=_Checked):
    """What both kinds of server have."""

    name: str = ""
    """How the server is called in requests, records and messages; unique within a run."""
    tools: Sequence[str] | Literal["all"] | None = None
    """Names of the tools that the model may use; None or `"all"`: every one."""
    timeout: float = START_TIMEOUT
    """Seconds for starting, and for listing the tools."""
    call_timeout: float = CALL_TIMEOUT
    """Seconds for one call; what takes longer is a result that the model sees."""
    shared: bool = False
    """One session for the whole run instead of one per sample."""
    rehydrate: bool = False
    """Whether a continued sample calls the tools of its recorded past again."""
    secrets: Sequence[str] = ()
    """Names of variables or headers whose values are secrets though their names do not say so."""
    hidden: Sequence[str] = ()
    """Values that came out of `${…}` variables with a secret's name; set by `read_mcp_file`."""

    def __repr__(self) -> str:  # the generated one would show the secrets
        return f"{type(self).__name__}(name={self.name!r})"

    def _check(self, values: Mapping[str, str], kind: str) -> None:
        """Refuse what cannot be used; `values` are the variables or headers."""
        _expect(self, isinstance(self.name, str) and self.name.isprintable(), "name", "a word")
        _expect(self, bool(self.name), "name", "a word")
        if self.tools == "all":
            msgspec.structs.force_setattr(self, "tools", None)
        for field in ("tools", "secrets"):
            texts = getattr(self, field)
            _expect(self, texts is None or _are_texts(texts), field, "a list of names")
        _expect(self, isinstance(values, Mapping), kind, "an object of names and texts")
        for name, value in values.items():
            _expect(self, isinstance(name, str) and isinstance(value, str), kind, "texts only")
            if "\0" in value or (kind == "headers" and ("\n" in value or "\r" in value)):
                raise UsageError(
                    f"MCP server {self.name!r}: the value of {name!r} in {kind} holds a line break "
                    "or a NUL"
                )
        for name in self.secrets:
            if name not in values:
                raise UsageError(
                    f"MCP server {self.name!r}: secrets names {name!r}, which {kind} does not hold"
                    f"{_near(name, values)}"
                )
        for field in ("timeout", "call_timeout"):
            seconds = getattr(self, field)
            number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            _expect(self, number and seconds > 0, field, "a positive number of seconds")
            if not seconds <= LONGEST_TIMEOUT:
                raise UsageError(
                    f"MCP server {self.name!r}: {field} is in seconds; {seconds:g} is more than "
                    f"{LONGEST_TIMEOUT:g} and was perhaps meant in milliseconds"
                )
        for field in ("shared", "rehydrate"):
            _expect(self, isinstance(getattr(self, field), bool), field, "true or false")


class MCPServerConfigStdio(_Server, frozen=True, kw_only=True):
    """A server that the harness starts on this machine and speaks to over its standard streams.

    It is given a small environment (PATH, HOME, LANG, …) and `env`, nothing else.
    """

    command: str
    """The program: a name to be found in PATH, or a path."""
    args: Sequence[str] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    type: Literal["stdio"] = "stdio"

    def __post_init__(self) -> None:
        if not self.name and isinstance(self.command, str):
            msgspec.structs.force_setattr(self, "name", Path(self.command).name)
        self._check(self.env, "env")
        _expect(self, isinstance(self.command, str) and bool(self.command), "command", "a program")
        _expect(self, _are_texts(self.args), "args", "a list of texts")
        _expect(self, self.cwd is None or isinstance(self.cwd, str), "cwd", "a folder's path")
        _expect(self, self.type == "stdio", "type", "'stdio'")


class MCPServerConfigHTTP(_Server, frozen=True, kw_only=True):
    """A server that runs already, reached over streamable HTTP."""

    url: str
    headers: Mapping[str, str] = {}
    type: Literal["http"] = "http"

    def __post_init__(self) -> None:
        if not self.name and isinstance(self.url, str):
            msgspec.structs.force_setattr(self, "name", urlsplit(self.url).hostname or "")
        self._check(self.headers, "headers")
        is_url = isinstance(self.url, str) and self.url.startswith(("http://", "https://"))
        _expect(self, is_url, "url", "an http:// or https:// address")
        _expect(self, self.type == "http", "type", "'http'")


MCPServerConfig = MCPServerConfigStdio | MCPServerConfigHTTP


def check_names(configs: Sequence[MCPServerConfig]) -> None:
    """UsageError when two servers have the same name."""
    seen: set[str] = set()
    for config in configs:
        if config.name in seen:
            raise UsageError(f"two MCP servers are named {config.name!r}")
        seen.add(config.name)


# ------------------------------------------------------------------------------ what may be kept


def to_settings(config: MCPServerConfig) -> dict[str, Any]:
    """What the run file keeps of a server: everything that a reply may depend on, no secret.

    Of variables and headers only the names are kept. In the command, its arguments and the
    address, `[secret]` stands for each value that `secrets` finds there. The start's timeout and
    `rehydrate` are left out: they may differ when a run is continued.
    """
    hidden = sorted((s for s in secrets(config) if len(s) >= 8), key=lambda s: (-len(s), s))

    def show(text: str) -> str:
        for secret in hidden:
            text = text.replace(secret, MARK)
        return text

    kept: dict[str, Any] = {"name": config.name, "type": config.type}
    if isinstance(config, MCPServerConfigStdio):
        kept["command"] = show(config.command)
        kept["args"] = [show(arg) for arg, _ in hide_arguments(config.args)]
        kept["cwd"] = show(config.cwd) if config.cwd else None
        kept["env"] = sorted(config.env)
    else:
        kept["url"] = show(hide(config.url)[0])
        kept["headers"] = sorted(config.headers)
    kept["tools"] = None if config.tools is None else sorted(set(config.tools))
    kept["call_timeout"] = float(config.call_timeout)
    kept["shared"] = config.shared
    return kept


def secrets(config: MCPServerConfig) -> list[str]:
    """Every value of a server's configuration that must not appear in a request or a reply.

    These are values of variables and headers whose names say key, token, secret, password, auth,
    cookie or credential, or are listed in `secrets`; likewise `--api-key VALUE`, `NAME=VALUE`,
    `Header: VALUE` in arguments, `?key=VALUE` and `user:password@` in addresses; and what
    `${…}` variables of such names gave. Plain numbers and switches are none.
    """
    found: list[str] = list(config.hidden)
    named = config.env if isinstance(config, MCPServerConfigStdio) else config.headers
    for name, value in named.items():
        if name in config.secrets or is_secret(name, value):
            found += parts(value)
    if isinstance(config, MCPServerConfigStdio):
        for _, hidden in hide_arguments(config.args):
            found += hidden
    else:
        found += hide(config.url)[1]
    return sorted({secret for secret in found if secret})


# ------------------------------------------------------------------------------------- the file

# keys of other clients that say nothing about what the server does
_IGNORED = ("description", "autoApprove", "alwaysAllow")
_VARIABLE = re.compile(r"\$\{(?:env:)?(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}")


def read_mcp_file(path: str | Path) -> list[MCPServerConfig]:
    """The servers that a file names.

    Either the shape of other clients, `{"mcpServers": {"fetch": {"command": …, "args": […]}}}`, or
    a list, `[{"name": "fetch", "command": …}]`. An entry has the fields of the two classes above;
    one with `"disabled": true` is skipped. `${VAR}` and `${VAR:-default}` (also `${env:VAR}`) are
    replaced in command, args, env, cwd, url and headers. UsageError names file and place.
    """
    try:
        data = json.loads(Path(path).read_text("utf-8"), object_pairs_hook=_no_doubles)
        if isinstance(data, dict):
            _no_unknown(data, ["mcpServers"], "the top level")
            servers = data.get("mcpServers", {})
            if not isinstance(servers, dict):
                raise UsageError("mcpServers must be an object of names and servers")
            entries = [(f"mcpServers.{name}", name, entry) for name, entry in servers.items()]
        elif isinstance(data, list):
            entries = [(f"entry {number}", None, entry) for number, entry in enumerate(data, 1)]
        else:
            raise UsageError('must hold {"mcpServers": {…}} or a list of servers')
        configs = [config for entry in entries if (config := _entry(*entry)) is not None]
        check_names(configs)
    except OSError as error:
        raise UsageError(f"the MCP file {path} cannot be read: {error.strerror}") from None
    except UsageError as error:
        raise UsageError(f"the MCP file {path}: {error.message}", hint=error.hint) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the MCP file {path} is no JSON: {error}") from None
    return configs


def _entry(place: str, name: str | None, entry: Any) -> MCPServerConfig | None:
    """One entry's server, or None when it is switched off."""
    if not isinstance(entry, dict):
        raise UsageError(f"{place} must be an object")
    entry = {key: value for key, value in entry.items() if key not in _IGNORED}
    if entry.pop("disabled", False) is True:
        return None
    if ("command" in entry) == ("url" in entry):
        keys = ", ".join(entry) or "none"
        raise UsageError(f"{place} needs either command or url; its keys: {keys}")
    cls = MCPServerConfigStdio if "command" in entry else MCPServerConfigHTTP
    known = [field for field in cls.__struct_fields__ if field != "hidden"]
    if "transport" in entry:
        entry["type"] = entry.pop("transport")
    if entry.get("type") in ("streamable-http", "streamableHttp", "streamable_http"):
        entry["type"] = "http"
    if entry.get("type") == "sse":
        raise UsageError(
            f"{place}: the old transport over SSE is not supported",
            hint="give the server's streamable-HTTP address as url, with type http",
        )
    if name is not None:
        known.remove("name")
    _no_unknown(entry, known, place)
    if name is not None:
        entry["name"] = name
    elif not entry.get("name"):
        raise UsageError(f"{place} has no name")
    hidden: list[str] = []
    for key in ("command", "args", "env", "cwd", "url", "headers"):
        if key in entry:
            entry[key] = _expanded(entry[key], f"{place}.{key}", hidden)
    try:
        return cls(**entry, hidden=hidden)
    except TypeError as error:
        raise UsageError(f"{place}: {error}") from None


def _expanded(value: Any, place: str, hidden: list[str]) -> Any:
    """The value with its variables replaced; those with a secret's name are put into `hidden`."""
    if isinstance(value, list):
        return [_expanded(item, f"{place}[{i}]", hidden) for i, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _expanded(item, f"{place}.{key}", hidden) for key, item in value.items()}
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        text = os.environ.get(name)
        if default is not None and not text:
            return default
        if text is None:
            raise UsageError(
                f"{place}: the variable {name} is not set",
                hint=f"export {name}=…, or write ${{{name}:-default}}",
            )
        if is_secret(name, text):
            hidden.extend(parts(text))
        return text

    return _VARIABLE.sub(replace, value)


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise UsageError(f"{key!r} stands twice in one object")
        found[key] = value
    return found


def _no_unknown(entry: Mapping[str, Any], known: Sequence[str], place: str) -> None:
    for key in entry:
        if key not in known:
            raise UsageError(f"unknown key {key!r} in {place}{_near(key, known)}")


def _near(name: str, known: Iterable[str]) -> str:
    names = list(known)
    import difflib  # only a wrong name needs it

    found = difflib.get_close_matches(name, names, n=1)
    if found:
        return f" (did you mean {found[0]!r}?)"
    return f"; known: {', '.join(sorted(names))}" if names else ""


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _expect(config: _Server, good: bool, field: str, what: str) -> None:
    if not good:
        raise UsageError(f"MCP server {config.name!r}: {field} must be {what}")
