"""The loop: a ReAct agent with bash, submit and the tools of the run's MCP servers.

It is deterministic: all that it knows of the outside comes through `world.perform`.
"""

from __future__ import annotations

from harness.answers import answer_text
from harness.dialogue import REMINDERS, Call, Dialogue, bash_text, cut, error_text
from harness.records import BashRequest, Sample, Settings, ToolRequest
from harness.world import World


def react(sample: Sample, world: World, settings: Settings) -> str | None:
    """Work on one sample until the model submits; the answer, or None when there is none.

    Calls of one turn are run in order and each gets its result; the first submit wins, and what
    the model called after it is not run. A turn without a call is answered with a reminder, twice
    in a row at most.
    """
    talk = Dialogue(sample, settings, world.tools)
    reminded = 0
    for _ in range(settings.max_steps):
        reply = world.perform(talk.request())
        if reply.error is not None:
            return None
        calls = talk.hear(reply)
        if not calls:
            if reminded == REMINDERS:
                return None
            reminded += 1
            talk.remind()
            continue
        reminded = 0
        for call in calls:
            if call.error is None and call.name == "submit":
                return answer_text(call.arguments["answer"])
            talk.answer(call, _result(call, world, settings))
    return None


def _result(call: Call, world: World, settings: Settings) -> str:
    """Run one call and word its result for the model."""
    if call.error is not None:
        return error_text(call.error)
    if call.name == "bash":
        request = BashRequest(call.arguments["command"], settings.command_timeout)
        return bash_text(world.perform(request), request.timeout, settings.max_output_chars)
    server = world.servers[call.name]
    reply = world.perform(ToolRequest(server, call.name, call.arguments))
    text = cut(reply.content, settings.max_output_chars)
    return f"[error]\n{text}" if reply.is_error else text
