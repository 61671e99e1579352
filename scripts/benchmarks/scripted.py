"""The outside world of a benchmark: replies are made before, so that recording is what costs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.workload import ANSWER, MODEL, Workload
from harness.attempt import BUILT_IN, load_callable, source_digest
from harness.dataset import Dataset, load, select, selection_digest
from harness.exchange import encode
from harness.live.merge import from_completion
from harness.live.wire import Exchange
from harness.opening import RecordConfig
from harness.progress import Quiet
from harness.recording import Recorded, record
from harness.records import (
    BashReply,
    BashRequest,
    ModelReply,
    ModelRequest,
    Reply,
    Request,
    Sample,
    Settings,
    ToolCall,
    Usage,
)
from harness.runfile import RunSettings, Selection
from harness.store import Store

Meta = dict[str, Any]
Turn = tuple[ModelReply, Meta]
"""A model's reply, and what a live one says of its circumstances."""


class PlayedWorld:
    """One sample's outside: its turns in order, and the output of each command.

    It counts the CPU time that it takes itself, in seconds of its thread.
    """

    tools: Sequence[dict[str, Any]] = ()
    servers: Mapping[str, str] = {}

    def __init__(
        self,
        turn: Callable[[int], Turn],
        output: Callable[[int], BashReply],
    ) -> None:
        """`turn` and `output` are called with the number of the step, from 0."""
        self._turn, self._output = turn, output
        self.seconds = 0.0
        self.effects = 0
        self._step = -1
        self._meta: Meta | None = None

    def perform(self, request: Request) -> Reply:
        began = time.thread_time()
        try:
            if isinstance(request, ModelRequest):
                self._step += 1
                reply, meta = self._turn(self._step)
                self._meta = dict(meta)
                return reply
            assert isinstance(request, BashRequest)
            self._meta = {"at": "2026-01-01T00:00:00.000Z", "seconds": 0.1234}
            return self._output(self._step)
        finally:
            self.seconds += time.thread_time() - began
            self.effects += 1

    def take_meta(self) -> Meta | None:
        """As a live world's: the same fields, of the same lengths."""
        meta, self._meta = self._meta, None
        return meta

    def close(self) -> None:
        """There is nothing to remove."""


class PlayedBackend:
    """Gives each sample its world, and knows what all of them took."""

    image: dict[str, Any] | None = None

    def __init__(self, world_of: Callable[[str], PlayedWorld]) -> None:
        """`world_of` is called with a sample's id."""
        self._world_of = world_of
        self.tools: list[dict[str, Any]] = []
        self._worlds: list[PlayedWorld] = []

    def world(self, sample: Sample, attachment: Path | None) -> PlayedWorld:
        world = self._world_of(sample.task_id)
        self._worlds.append(world)
        return world

    @property
    def seconds(self) -> float:
        """CPU time of the worlds."""
        return sum(world.seconds for world in self._worlds)

    @property
    def effects(self) -> int:
        """Requests that were performed."""
        return sum(world.effects for world in self._worlds)

    def abort(self) -> None:
        """Nothing is in flight."""

    def close(self) -> None:
        """Nothing is open."""


def turns_of(workload: Workload, number: int, *, wire: bool) -> list[Turn]:
    """A sample's turns as the live side would give them, with their HTTP exchanges if wanted."""
    turns = []
    for step, response in enumerate(workload.responses[number]):
        merged = from_completion(response)
        meta = {
            "at": "2026-01-01T00:00:00.000Z",
            "seconds": 1.2345,
            **merged.details,
            "latency": 1.2344567890123456,
            "attempts": [{"status": 200, "waited": 0.0}],
        }
        if wire:
            exchange = Exchange(
                method="POST",
                path="/v1/chat/completions",
                request_sha256=f"{number:032x}{step:032x}",
                status=200,
                headers={"content-type": "application/json"},
                body=workload.bodies[number][step],
            )
            meta["exchanges"] = [encode(exchange)]
        turns.append((merged.reply, meta))
    return turns


def world_of_workload(workload: Workload, number: int, *, wire: bool) -> PlayedWorld:
    """A sample of the workload, made ready."""
    turns = turns_of(workload, number, wire=wire)
    outputs = [BashReply(output.encode()) for output in workload.outputs[number]]
    return PlayedWorld(turns.__getitem__, outputs.__getitem__)


def backend_of_workload(workload: Workload, *, wire: bool) -> PlayedBackend:
    """All samples of the workload, made ready before the first is recorded."""
    worlds = {
        workload.task_id(number): world_of_workload(workload, number, wire=wire)
        for number in range(workload.samples)
    }
    return PlayedBackend(worlds.__getitem__)


def made_world(
    steps: int,
    *,
    output: Callable[[int], BashReply] | None = None,
    before_last: Callable[[], None] = lambda: None,
) -> PlayedWorld:
    """A world that makes its replies when they are asked for, and holds none of them."""
    line = "a line of an output that a command might print, number %d\n"

    def printed(step: int) -> BashReply:
        return BashReply(b"".join((line % (100 * step + n)).encode() for n in range(64)))

    def turn(step: int) -> Turn:
        name, arguments = "bash", {"command": f"cat part-{step}.txt"}
        if step == steps:
            before_last()
            name, arguments = "submit", {"answer": ANSWER}
        call = ToolCall(f"call_{step:012x}", name, json.dumps(arguments))
        usage = Usage(700 + 1300 * step, 100)
        reply = ModelReply(f"I look at part {step}.", (call,), None, None, "tool_calls", usage)
        return reply, {"at": "2026-01-01T00:00:00.000Z", "seconds": 1.2345}

    return PlayedWorld(turn, output or printed)


# ------------------------------------------------------------------------------------- recording


def dataset_of(folder: Path) -> Dataset:
    """The data set that was written there."""
    return load(folder, id="invented")


def config_of(data: Dataset, run: str, loop: Settings, *, batch: int = 1) -> RecordConfig:
    """A recording of the whole data set."""
    items = select(data)
    agent = load_callable(BUILT_IN, "the agent")
    return RecordConfig(
        run=run,
        settings=RunSettings(loop=loop, agent=BUILT_IN, agent_source=source_digest(agent)),
        dataset=data,
        source="folder",
        items=items,
        selection=Selection(
            selected=len(items), of=len(data.items), digest=selection_digest(items)
        ),
        eval_batch_size=batch,
    )


def loop_of(steps: int, *, context_limit: int | None = None) -> Settings:
    """Settings that let a sample of so many steps end by itself."""
    return Settings(
        model=MODEL,
        params={"temperature": 0},
        max_steps=steps + 5,
        context_limit=context_limit,
    )


def take(store: Store, config: RecordConfig, backend: Any, progress: Any | None = None) -> Recorded:
    """Record through the real `record`, with this backend at the seam."""
    done = record(store, config, connect=lambda *_: backend, progress=progress or Quiet())
    if done.findings or done.interrupted:
        raise AssertionError(f"the benchmark's recording has findings: {done.findings[:3]}")
    return done
