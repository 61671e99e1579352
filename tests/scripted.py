"""Recording without anything live: a backend whose worlds are `ScriptedWorld`s, and a data set."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.attempt import load_callable, source_digest
from harness.dataset import Dataset, load, select, selection_digest
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
from harness.world import ScriptedWorld

Policy = Callable[[Sample, Request], Reply]


def call(name: str, /, id: str = "call_1", **arguments: Any) -> ToolCall:
    """A tool call with JSON arguments."""
    return ToolCall(id, name, json.dumps(arguments))


def says(text: str | None = None, *calls: ToolCall, **more: Any) -> ModelReply:
    """A model reply with ten input and five output tokens."""
    return ModelReply(content=text, tool_calls=calls, usage=Usage(10, 5), **more)


def counting(sample: Sample, request: Request) -> Reply:
    """A policy: three commands, then submit the last output. Truths are made to fit it."""
    if isinstance(request, BashRequest):
        return BashReply(stdout=f"{sample.task_id}: {request.command}\n".encode())
    assert isinstance(request, ModelRequest)
    turn = sum(message["role"] == "assistant" for message in request.messages)
    if turn < 3:
        return says(f"look {turn}", call("bash", id=f"c{turn}", command=f"echo {turn}"))
    return says("done", call("submit", id="c9", answer=sample.task_id))


class World(ScriptedWorld):
    """A scripted world with the two things that a live one has besides."""

    def take_meta(self) -> dict[str, Any] | None:
        return {"scripted": True}

    def close(self) -> None:
        pass


class Backend:
    """Gives every sample a world that follows the policy; counts what was asked."""

    image: dict[str, Any] | None = None
    tools: list[dict[str, Any]]

    def __init__(self, policy: Policy = counting) -> None:
        self.policy = policy
        self.tools = []
        self.asked: list[tuple[str, str]] = []
        """Task id and kind of every request, in the order in which they came."""
        self.lock = threading.Lock()

    def world(self, sample: Sample, attachment: Path | None) -> World:
        def perform(request: Request) -> Reply:
            with self.lock:
                self.asked.append((sample.task_id, request.kind))
            reply = self.policy(sample, request)
            if isinstance(reply, BaseException):
                raise reply
            return reply

        return World(perform)

    def models(self) -> int:
        return sum(kind == "model" for _, kind in self.asked)

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


def dataset(folder: Path, rows: Sequence[tuple[str, int, str]]) -> Dataset:
    """A data set in GAIA's layout of (task id, level, truth)."""
    target = folder / "2023" / "validation"
    target.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(
            {
                "task_id": task_id,
                "Question": f"What is the name of task {task_id}?",
                "Level": level,
                "Final answer": truth,
                "file_name": "",
                "file_path": "",
                "Annotator Metadata": {},
            }
        )
        for task_id, level, truth in rows
    ]
    (target / "metadata.jsonl").write_text("\n".join(lines) + "\n")
    return load(folder, id="invented")


def config(data: Dataset, run: str = "r", **more: Any) -> RecordConfig:
    """A recording of the whole data set."""
    loop = more.pop("loop", Settings(model="scripted"))
    epochs = more.pop("epochs", 1)
    agent = more.pop("agent", "harness.agent:react")
    limits = more.pop("limits", {})
    items = select(data, task_ids=more.pop("task_ids", ()))
    return RecordConfig(
        run=run,
        settings=RunSettings(
            loop=loop,
            agent=agent,
            agent_source=source_digest(load_callable(agent, "the agent")),
            **limits,
        ),
        dataset=data,
        items=items,
        selection=Selection(
            selected=len(items),
            of=len(data.items),
            digest=selection_digest(items),
            epochs=epochs,
        ),
        **more,
    )


def take(store: Store, config: RecordConfig, backend: Backend, **more: Any) -> Recorded:
    """Record with a scripted backend."""
    return record(
        store, config, connect=lambda *_: backend, progress=more.pop("progress", Quiet()), **more
    )


def steps(replies: Sequence[Reply]) -> Policy:
    """A policy that gives these replies in order, whatever is asked."""
    left: Iterator[Reply] = iter(replies)
    return lambda sample, request: next(left)
