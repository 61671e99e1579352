"""Rebuilding a sandbox: run the recorded commands again, in order, and compare what they print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from harness.cassette import AnyEffect, BashEffect, Tape
from harness.records import BashReply, BashRequest, Request

SHOWN = 200
"""Characters of a differing output that a drift report quotes."""


class Runs(Protocol):
    """A world with a sandbox."""

    def perform(self, request: Request) -> Any: ...


def rehydrate(world: Runs, tape: Tape, effects: Sequence[AnyEffect]) -> list[dict[str, Any]]:
    """Run the bash commands of the effects again, with their timeouts; returns what differed.

    Each drift names effect, command, the fields that differ, and whether it is hard: another exit
    code or another end than before, rather than another text. A SandboxError passes through.
    """
    found = []
    for number, effect in enumerate(effects, 1):
        if not isinstance(effect, BashEffect) or effect.reply is None:
            continue
        recorded: BashReply = tape.reply(effect)
        request = BashRequest(effect.request.command, effect.request.timeout)
        now: BashReply = world.perform(request)
        fields = [
            name
            for name in ("exit_code", "timed_out", "stdout", "stderr")
            if getattr(recorded, name) != getattr(now, name)
        ]
        if fields:
            found.append(_drift(number, request.command, fields, recorded, now))
    return found


def image_drift(
    recorded: dict[str, Any] | None, now: dict[str, Any] | None
) -> list[dict[str, Any]]:
    """Hard drift when the sandbox's image has other RootFS layers than the recorded one."""
    if recorded is None or now is None or list(recorded["layers"]) == list(now["layers"]):
        return []
    was, became = recorded["id"], now["id"]
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


def _drift(
    number: int, command: str, fields: list[str], recorded: BashReply, now: BashReply
) -> dict[str, Any]:
    first = fields[0]
    was, became = _shown(getattr(recorded, first)), _shown(getattr(now, first))
    return {
        "effect": number,
        "command": command[:SHOWN],
        "fields": fields,
        "hard": any(name in ("exit_code", "timed_out") for name in fields),
        "recorded": was,
        "now": became,
        "told": f"effect {number}: {first} was {was!r}, is {became!r}",
    }


def _shown(value: Any) -> Any:
    return value.decode("utf-8", "replace")[:SHOWN] if isinstance(value, bytes) else value
