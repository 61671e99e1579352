"""Rebuilding a sandbox: run the recorded commands again, in order, and compare what they print."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from harness import canonical
from harness.cassette import AnyEffect, BashEffect, Tape, ToolEffect
from harness.records import BashRequest, Reply, Request, ToolRequest

SHOWN = 200
"""Characters of a differing output that a drift report quotes."""


class Runs(Protocol):
    """A world with a sandbox."""

    def perform(self, request: Request) -> Any: ...


def rehydrate(
    world: Runs,
    tape: Tape,
    effects: Sequence[AnyEffect],
    *,
    call_again: Collection[str] = (),
    clean: Callable[[Reply], Reply] = lambda reply: reply,
) -> list[dict[str, Any]]:
    """Run the bash commands of the effects again, with their timeouts; returns what differed.

    Each drift names effect, command, the fields that differ, and whether it is hard: another exit
    code or another end than before, rather than another text. Tools are called again for the
    servers in `call_again` only; that others were not is noted too. `clean` takes the secrets out
    of a reply, as was done to the recorded one. A SampleError passes through.
    """
    found = []
    for number, effect in enumerate(effects, 1):
        if effect.reply is None:
            continue
        if isinstance(effect, BashEffect):
            command, timeout = effect.request.command, effect.request.timeout
            names = ["exit_code", "timed_out", "stdout", "stderr"]
            request: Request = BashRequest(command, timeout)
        elif isinstance(effect, ToolEffect):
            server, tool = effect.request.server, effect.request.name
            command, names = f"{server}.{tool}", ["is_error", "content"]
            if server not in call_again:
                found.append(_not_called(number, command))
                continue
            request = ToolRequest(server, tool, effect.request.arguments)
        else:
            continue
        recorded, now = tape.reply(effect), clean(world.perform(request))
        fields = [name for name in names if getattr(recorded, name) != getattr(now, name)]
        if fields:
            found.append(_drift(number, command, fields, recorded, now))
    return found


def tools_drift(
    recorded: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Hard drift when the MCP servers offer other tools than those that the run holds."""
    if canonical.dumps(list(recorded)) == canonical.dumps(list(now)):
        return []
    was, became = ([tool["name"] for tool in tools] for tools in (recorded, now))
    told = f"the MCP tools were {was}, are {became}"
    if was == became:
        told = "an MCP tool has another schema than the recorded one"
    return [
        {
            "effect": 0,
            "command": "",
            "fields": ["tools"],
            "hard": True,
            "recorded": was,
            "now": became,
            "told": told,
        }
    ]


def _not_called(number: int, command: str) -> dict[str, Any]:
    return {
        "effect": number,
        "command": command,
        "fields": ["tool"],
        "hard": False,
        "recorded": None,
        "now": None,
        "told": f"effect {number}: {command} was not called again",
    }


def image_drift(
    recorded: dict[str, Any] | None, now: dict[str, Any] | None
) -> list[dict[str, Any]]:
    """Hard drift when the sandbox's image has other RootFS layers than the recorded one."""
    if recorded is None or now is None or recorded.get("layers") == list(now["layers"]):
        return []
    was, became = recorded.get("id"), now["id"]
    return [
        {
            "effect": 0,
            "command": "",
            "fields": ["image"],
            "hard": True,
            "recorded": was,
            "now": became,
            "told": f"the image was {was}, is {became}",
        }
    ]


def _drift(number: int, command: str, fields: list[str], recorded: Any, now: Any) -> dict[str, Any]:
    first = fields[0]
    was, became = _shown(getattr(recorded, first)), _shown(getattr(now, first))
    return {
        "effect": number,
        "command": command[:SHOWN],
        "fields": fields,
        "hard": any(name in ("exit_code", "timed_out", "is_error") for name in fields),
        "recorded": was,
        "now": became,
        "told": f"effect {number}: {first} was {was!r}, is {became!r}",
    }


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value[:SHOWN] if isinstance(value, str) else value
