"""Which steps of an imported run our loop can vouch for.

What another tool asked its model with is not what our loop would ask: its prompts and tools are its
own, and are not compared. What can be asked is this: given the replies that the model gave, would
the loop run the same commands, call the same tools, and end with the same answer? A step, which is
one turn of the model with what was run for it, follows if it would.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from harness.attempt import Agent, attempt
from harness.cassette import AnyEffect, BashEffect, ModelEffect, Tape, ToolEffect
from harness.difference import shorten
from harness.errors import LimitError, SampleError
from harness.records import (
    BashReply,
    BashRequest,
    ModelRequest,
    Reply,
    Request,
    Settings,
    ToolReply,
    ToolRequest,
)
from harness.world import World

SHOWN = 3
"""Steps that are told in full; of the others, how many."""


class Vouched(msgspec.Struct, kw_only=True):
    """What the loop would do with an imported sample's replies."""

    steps: int
    """Model turns on the tape."""
    doubts: dict[int, str] = {}
    """The steps that do not follow, from 1, and why."""
    ended: int | None = None
    """The last step of the loop, where more came in the tool's."""

    @property
    def text(self) -> str:
        """One line."""
        told = [f"step {step}: {why}" for step, why in sorted(self.doubts.items())[:SHOWN]]
        if len(self.doubts) > SHOWN:
            told.append(f"and {len(self.doubts) - SHOWN} more")
        follow = self.steps - len(self.doubts)
        if self.ended is not None:
            told.append(f"the loop ends at step {self.ended}")
            follow = self.ended - len(self.doubts)
        return "; ".join([f"loop: {follow} of {self.steps} steps follow", *told])


def vouch(tape: Tape, agent: Agent, settings: Settings) -> Vouched:
    """Run the loop on the replies of an imported tape, and hold what it asks for against it."""
    world = _Imported(tape)
    longer = max(settings.max_steps, world.found.steps)  # a limit that was not kept is none
    settings = msgspec.structs.replace(settings, max_steps=longer)
    outcome = attempt(agent, tape.header.sample, world, settings)
    world.finish()
    end = tape.end
    last = max(world.step, 1)
    if end is not None and world.found.steps and not world.beyond:
        if outcome.failure is not None and end.failure is None:
            world.doubt(last, f"the loop ends in an error ({outcome.failure.kind})")
        elif outcome.status == end.status and outcome.answer != end.answer:
            world.doubt(last, _ends(outcome.answer, end.answer))
    elif world.beyond and end is not None and end.answer is not None:
        world.doubt(last, "the loop would go on; the tool took its last text as the answer")
    return world.found


def _ends(ours: str | None, theirs: str | None) -> str:
    if ours is None:
        return "the loop ends without an answer"
    return "the loop ends with an answer" if theirs is None else "the loop ends with another answer"


class _Imported(World):
    """Serves the replies in their order, whatever they were asked with, and notes what differs."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._turns: deque[ModelEffect] = deque()
        self._runs: deque[deque[AnyEffect]] = deque()
        for effect in tape.effects:
            if isinstance(effect, ModelEffect):
                self._turns.append(effect)
                self._runs.append(deque())
            elif self._runs:
                self._runs[-1].append(effect)
        names = {
            effect.request.name: effect.request.server
            for effect in tape.effects
            if isinstance(effect, ToolEffect)
        }
        self.servers = names
        self.tools = [{"type": "function", "function": {"name": name}} for name in names]
        self.found = Vouched(steps=len(self._turns), doubts={})
        self.step = 0
        self.beyond = False
        """Whether the loop asked for more turns than there are."""
        self.ended_by: SampleError | None = None
        self._left: deque[AnyEffect] = deque()

    def doubt(self, step: int, why: str) -> None:
        """Note the first reason why a step does not follow."""
        self.found.doubts.setdefault(step, why)

    def perform(self, request: Request) -> Reply:
        if self.ended_by is not None:
            raise self.ended_by
        if isinstance(request, ModelRequest):
            return self._turn()
        return self._run(request)

    def end(self) -> None:
        """Nothing is in flight, and nothing here can be spoilt."""

    def _turn(self) -> Reply:
        self._close()
        if not self._turns:
            self.beyond = True
            failure = self._tape.end.failure if self._tape.end else None
            self.ended_by = LimitError("the imported turns are over")
            if failure is not None:
                self.ended_by = SampleError.of_kind(failure.kind, failure.message)
            raise self.ended_by
        self.step += 1
        effect, self._left = self._turns.popleft(), self._runs.popleft()
        if effect.failure is not None:
            self.ended_by = SampleError.of_kind(effect.failure.kind, effect.failure.message)
            raise self.ended_by
        if (effect.meta or {}).get("lost"):
            self.doubt(self.step, f"{(effect.meta or {})['lost']} were not kept")
        return self._tape.reply(effect)

    def _run(self, request: Request) -> Reply:
        effect = self._left.popleft() if self._left else None
        why = _differs(request, effect)
        if why is not None or effect is None:
            self.doubt(self.step, why or "")
            return BashReply() if isinstance(request, BashRequest) else ToolReply("")
        return self._tape.reply(effect)

    def _close(self) -> None:
        if self._left:
            self.doubt(self.step, f"{len(self._left)} more were run: {_told(self._left[0])}")

    def finish(self) -> None:
        """Note what the loop left over."""
        self._close()
        if self._turns:
            self.found.ended = self.step


def _differs(request: Request, effect: AnyEffect | None) -> str | None:
    """Why what the loop asks for is not what was run; None where it is."""
    asked = _request(request)
    if effect is None:
        return f"it was not run there: {asked}"
    if isinstance(request, BashRequest) and isinstance(effect, BashEffect):
        taped = effect.request
        if taped.command != request.command:
            return f"another command was run: {_told(effect)}"
        if taped.timeout != request.timeout:
            return (
                f"it ran with a timeout of {taped.timeout:g} s, the loop's is {request.timeout:g}"
            )
        return None
    if isinstance(request, ToolRequest) and isinstance(effect, ToolEffect):
        if (effect.request.name, effect.request.arguments) == (request.name, request.arguments):
            return None
        return f"another call was made: {_told(effect)}"
    return f"something else was run: {_told(effect)}"


def _request(request: Any) -> str:
    if isinstance(request, BashRequest):
        return shorten(f"$ {request.command}", 60)
    return str(getattr(request, "name", request.kind))[:60]


def _told(effect: AnyEffect) -> str:
    if isinstance(effect, BashEffect):
        return shorten(f"$ {effect.request.command}", 60) if effect.request.command else "nothing"
    return str(getattr(effect.request, "name", ""))[:60]
