"""What is measured in a process of its own: `python -m benchmarks.tasks NAME JSON`."""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.floor import floor
from benchmarks.measuring import counted_syncs, cpu_of, rounds
from benchmarks.scripted import (
    PlayedBackend,
    PlayedWorld,
    backend_of_workload,
    config_of,
    dataset_of,
    loop_of,
    made_world,
    take,
    world_of_workload,
)
from benchmarks.workload import MODEL, Workload, write_questions
from harness import canonical
from harness.agent import react
from harness.cassette import FORMAT, VERSION, Agent, Header
from harness.journal import Journal, TapeWriter
from harness.live.backend import Backend, LiveWorld
from harness.live.capture import Capture
from harness.live.model import Model
from harness.live.sandbox import ImageIdentity
from harness.progress import Quiet
from harness.records import BashReply, BashRequest, ModelRequest, Reply, Request, Sample
from harness.replaying import ReplayOptions, RunReplay, replay_run
from harness.report import SampleResult
from harness.runfile import RunFile, read_run, write_run
from harness.store import PREFIX, Store, object_path
from harness.truths import remember
from harness.world import Recorder, ScriptedWorld, World

Result = dict[str, Any]

RUN = "run"


def memory_mb() -> float:
    """The peak of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


# ---------------------------------------------------------------------------- the workload itself


def make(
    folder: str,
    samples: int,
    steps: int,
    wire: bool = False,
    limit: int | None = None,
) -> Result:
    """Record the workload through the real `record`; what it cost and what is stored."""
    root = Path(folder)
    workload = Workload(samples, steps)
    workload.write_dataset(root / "data")
    data = dataset_of(root / "data")
    os.environ["HARNESS_CACHE"] = str(root / "cache")
    remember(data)
    backend = backend_of_workload(workload, wire=wire)
    store = Store(root / "store")
    config = config_of(data, RUN, loop_of(steps, context_limit=limit))
    with counted_syncs() as syncs:
        wall, cpu = time.perf_counter(), time.process_time()
        done = take(store, config, backend)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    whole, apart = workload.distinct()
    tapes = [os.path.getsize(path) for path, _ in _cassettes(root)]
    objects = sum(path.stat().st_size for path in (root / "store/objects").rglob("*/*/*"))
    return {
        "right": done.report.metrics["right"],
        "effects": backend.effects,
        "cpu_s": cpu,
        "world_cpu_s": backend.seconds,
        "wall_s": wall,
        "fsyncs": syncs.count,
        "fsync_wall_s": syncs.wall,
        "distinct_bytes": whole,
        "distinct_per_cassette_bytes": apart,
        "cassette_bytes": sum(tapes),
        "metadata_bytes": _metadata_bytes(root),
        "largest_cassette_bytes": max(tapes),
        "run_file_bytes": (root / f"store/runs/{RUN}.json").stat().st_size,
        "wire_bytes": objects - sum(tapes),
    }


def _cassettes(root: Path) -> list[tuple[str, str]]:
    """Path and hex SHA-256 of every cassette of the run."""
    names = [entry.cassette or "" for entry in read_run(Store(root / "store"), RUN).samples]
    return [(str(root / "store" / object_path(name)), name.removeprefix(PREFIX)) for name in names]


def _metadata_bytes(root: Path) -> int:
    """What times, ids and token details of the replies take in the cassettes."""
    total = 0
    for path, _ in _cassettes(root):
        for line in Path(path).read_bytes().splitlines():
            meta = json.loads(line).get("meta")
            if meta is not None:
                total += len(json.dumps(meta, separators=(",", ":"))) + len(',"meta":')
    return total


def replay(folder: str, pairs: int) -> Result:
    """Floor and replay of a run, in turn; CPU seconds of each."""
    root = Path(folder)
    store, data, files = Store(root / "store"), dataset_of(root / "data"), _cassettes(root)

    def replayed() -> None:
        report, findings = replay_run(store, RUN, dataset=data)
        if findings or not all(result.identical for result in report.samples):
            raise AssertionError(f"the benchmark's replay has findings: {findings[:3]}")

    works = {"floor": lambda: cpu_of(lambda: floor(files)), "replay": lambda: cpu_of(replayed)}
    rounds(works, 1)  # imports and caches
    return rounds(works, pairs)


def parts(folder: str) -> Result:
    """Where a replay's CPU time goes, by parts that can be run alone; milliseconds, best of 5."""
    root = Path(folder)
    store, data, files = Store(root / "store"), dataset_of(root / "data"), _cassettes(root)
    replay = RunReplay(store, RUN, dataset=data)
    tapes = [replay.tape(entry) for entry in replay.entries]

    class Ready:
        """Replies that cost nothing: what is left is the loop, its history and its digests."""

        tools = ()

        def __init__(self, replies: list[Reply]) -> None:
            self._replies = iter(replies)

        def perform(self, request: Request) -> Reply:
            return next(self._replies)

    replies = [[tape.reply(effect) for effect in tape.effects] for tape in tapes]

    def loops() -> None:
        for tape, ready in zip(tapes, replies, strict=True):
            react(tape.header.sample, Ready(ready), replay.settings)  # type: ignore[arg-type]

    def replays() -> None:
        for entry, tape in zip(replay.entries, tapes, strict=True):
            replay.replay(entry, tape)

    works: dict[str, Callable[[], object]] = {
        "floor": lambda: floor(files),
        "read and verify": lambda: [store.get(PREFIX + name) and None for _, name in files],
        "read, verify, decode": lambda: [replay.tape(entry) and None for entry in replay.entries],
        "loop over ready replies": loops,
        "loop at the seam": replays,
        "whole": lambda: replay_run(store, RUN, dataset=data),
    }
    return {name: 1e3 * min(cpu_of(work) for _ in range(5)) for name, work in works.items()}


def depth(folders: dict[str, str], count: int) -> Result:
    """Replays of several runs in turn; CPU seconds of each."""

    def work(folder: str) -> Callable[[], float]:
        root = Path(folder)
        store, data = Store(root / "store"), dataset_of(root / "data")
        return lambda: cpu_of(lambda: replay_run(store, RUN, dataset=data))

    works = {name: work(folder) for name, folder in folders.items()}
    rounds(works, 1)
    return rounds(works, count)


# ------------------------------------------------------------------------------------- recording


class _Timed(World):
    """Another world, with the CPU time of its thread that it takes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.seconds = 0.0

    def perform(self, request: Request) -> Reply:
        began = time.thread_time()
        try:
            return self._world.perform(request)
        finally:
            self.seconds += time.thread_time() - began


def _recorder(store: Store, number: int, world: PlayedWorld, steps: int) -> Recorder:
    sample = Sample(task_id=Workload.task_id(number), question="?", level=1)
    header = Header(
        format=FORMAT, version=VERSION, sample=sample, agent=Agent("harness.agent:react", "")
    )
    journal = Journal.begin(store, RUN, f"{number}@1", header, TapeWriter())
    return Recorder(world, journal, model=MODEL)


def recorder(folder: str, samples: int, steps: int, wire: bool = False) -> Result:
    """What `Recorder.perform` takes beyond the world that it records, per effect; fsyncs."""
    workload = Workload(samples, steps)
    store = Store(folder)
    store.create()
    outer = inner = 0.0
    effects = 0
    with counted_syncs() as syncs:
        before = syncs.count
        for number in range(samples):
            world = world_of_workload(workload, number, wire=wire)
            made = _recorder(store, number, world, steps)
            timed = _Timed(made)
            sample = Sample(
                task_id=Workload.task_id(number), question=workload.questions[number], level=1
            )
            react(sample, timed, loop_of(steps))
            outer, inner = outer + timed.seconds, inner + world.seconds
            effects += world.effects
        count, wall = syncs.count - before, syncs.wall
    return {
        "effects": effects,
        "cpu_ms_per_effect": 1e3 * (outer - inner) / effects,
        "fsyncs_per_effect": count / effects,
        "fsync_wall_ms_per_effect": 1e3 * wall / effects,
    }


def recording_memory(folder: str, steps: int) -> Result:
    """Peak memory of recording one sample, before it is sealed and after; the history's bytes."""
    root = Path(folder)
    write_questions(root / "data", ["Which number is it?"])
    data = dataset_of(root / "data")
    peaks: list[float] = []
    world = made_world(steps, before_last=lambda: peaks.append(memory_mb()))
    history = _Sizes()
    began = memory_mb()
    store = Store(root / "store")
    done = take(
        store, config_of(data, RUN, loop_of(steps)), PlayedBackend(lambda _: history.over(world))
    )
    return {
        "right": done.report.metrics["right"],
        "history_bytes": history.bytes,
        "before_mb": began,
        "recorded_mb": peaks[-1],
        "sealed_mb": memory_mb(),
    }


class _Sizes:
    """Counts the canonical bytes of the history that a world is asked with."""

    def __init__(self) -> None:
        self.bytes = 0
        self._seen = 0

    def over(self, world: PlayedWorld) -> PlayedWorld:
        perform = world.perform

        def counted(request: Request) -> Reply:
            if isinstance(request, ModelRequest):
                new = []
                node = request.messages
                while len(node) > self._seen and node.parent is not None:
                    new.append(node.message)
                    node = node.parent
                self.bytes += sum(len(canonical.message_bytes(message)) for message in new)
                self._seen = len(request.messages)
            return perform(request)

        world.perform = counted  # type: ignore[method-assign]
        return world


# ---------------------------------------------------------------------------------------- stress


def long_sample(folder: str, steps: int) -> Result:
    """Record and replay one sample of so many steps."""
    root = Path(folder)
    write_questions(root / "data", ["Which number is it?"])
    data, store = dataset_of(root / "data"), Store(root / "store")
    backend = PlayedBackend(lambda _: made_world(steps))
    recorded = cpu_of(lambda: take(store, config_of(data, RUN, loop_of(steps)), backend))
    replayed = min(cpu_of(lambda: replay_run(store, RUN, dataset=data)) for _ in range(3))
    return {"record_cpu_s": recorded, "replay_cpu_s": replayed, "memory_mb": memory_mb()}


def big_output(folder: str, megabytes: float, capped: bool) -> Result:
    """Record and replay one command that prints so much; capped as the sandbox does it, or not."""
    root = Path(folder)
    write_questions(root / "data", ["Which number is it?"])
    data, store = dataset_of(root / "data"), Store(root / "store")
    line = b"one of the many lines of a very long output, and it says nothing that is new\n"
    lines = int(megabytes * 1e6) // len(line)

    def printed(step: int) -> BashReply:
        if not capped:
            return BashReply(line * lines)
        capture = Capture(1 << 20)
        for _ in range(lines // 800):
            capture.feed(line * 800)
        kept, omitted = capture.result()
        return BashReply(kept, omitted=omitted)

    backend = PlayedBackend(lambda _: made_world(1, output=printed))
    recorded = cpu_of(lambda: take(store, config_of(data, RUN, loop_of(1)), backend))
    replayed = cpu_of(lambda: replay_run(store, RUN, dataset=data))
    return {
        "record_cpu_s": recorded,
        "replay_cpu_s": replayed,
        "memory_mb": memory_mb(),
        "cassette_bytes": os.path.getsize(_cassettes(root)[0][0]),
    }


class _Marks(Quiet):
    """Notes the CPU time whenever so many more samples are finished."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self._every, self._count, self._began = every, 0, time.process_time()
        self.points: list[tuple[int, float]] = []

    def sample(self, result: SampleResult) -> None:
        self._count += 1
        if self._count % self._every == 0:
            self.points.append((self._count, time.process_time() - self._began))


def many_samples(folder: str, samples: int) -> Result:
    """Record and replay a run of so many small samples; the CPU time on the way."""
    root = Path(folder)
    write_questions(root / "data", [f"Which number is number {n}?" for n in range(samples)])
    data, store = dataset_of(root / "data"), Store(root / "store")
    every = max(1, samples // 8)
    marks = _Marks(every)
    backend = PlayedBackend(lambda _: made_world(1))
    take(store, config_of(data, RUN, loop_of(1)), backend, marks)
    replay = RunReplay(store, RUN, ReplayOptions(), dataset=data)
    replayed = _Marks(every)
    for entry in replay.entries:
        checked = replay.check(entry)
        if not checked.result.identical:
            raise AssertionError(checked.findings)
        replayed.sample(checked.result)
    return {"record": marks.points, "replay": replayed.points, "memory_mb": memory_mb()}


def many_runs(folder: str, runs: int) -> Result:
    """Give the run of a store so many names: `run-000` and on."""
    store = Store(Path(folder) / "store")
    run: RunFile = read_run(store, RUN)
    for number in range(runs):
        run.name = f"run-{number:04d}"
        write_run(store, run)
    store.remove_run(RUN)
    return {"runs": len(store.runs())}


# ------------------------------------------------------------------------------------------ live


class _ScriptedSandbox:
    """A sandbox whose outputs are given: `ScriptedWorld` in the place of a container."""

    image: ImageIdentity | None = None

    def __init__(self, outputs: list[str]) -> None:
        self._world = ScriptedWorld([BashReply(output.encode()) for output in outputs])

    def run(self, command: str, timeout: float) -> BashReply:
        reply: BashReply = self._world.perform(BashRequest(command, timeout))
        return reply

    def close(self) -> None:
        """There is nothing to remove."""


class _Endpoint:
    """A backend with the real model client, and scripted sandboxes."""

    image: dict[str, Any] | None = None

    def __init__(self, port: int, workload: Workload) -> None:
        self._model = Model(MODEL, api_url=f"http://127.0.0.1:{port}/v1", api_key="none")
        self._workload = workload
        self.tools: list[dict[str, Any]] = []

    def world(self, sample: Sample, attachment: Path | None) -> LiveWorld:
        outputs = self._workload.outputs[int(sample.task_id)]
        return LiveWorld(self._model, _ScriptedSandbox(outputs), None, [], lambda world: None)

    def abort(self) -> None:
        """Nothing is in flight."""

    def close(self) -> None:
        self._model.close()


def in_flight(folder: str, port: int, samples: int, steps: int) -> Result:
    """Record so many samples at once from an endpoint over HTTP; scripted sandboxes."""
    root = Path(folder)
    workload = Workload(samples, steps)
    workload.write_dataset(root / "data")
    config = config_of(dataset_of(root / "data"), RUN, loop_of(steps), batch=samples)
    before = memory_mb()
    with counted_syncs() as syncs:
        wall, cpu = time.perf_counter(), time.process_time()
        done = take(Store(root / "store"), config, _Endpoint(port, workload))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    effects = samples * (2 * steps + 1)
    return {
        "right": done.report.metrics["right"],
        "wall_s": wall,
        "cpu_s": cpu,
        "effects": effects,
        "fsyncs_per_effect": syncs.count / effects,
        "memory_mb": memory_mb() - before,
    }


class _Watched:
    """A backend's world whose removal is timed."""

    def __init__(self, world: LiveWorld, closed: Callable[[float], None]) -> None:
        self._world, self._closed = world, closed
        self.tools, self.servers = world.tools, world.servers
        self.perform, self.take_meta = world.perform, world.take_meta

    def close(self) -> None:
        began = time.perf_counter()
        self._world.close()
        self._closed(time.perf_counter() - began)


class _WatchedBackend(Backend):
    """The real backend, with the time that each sandbox's removal takes."""

    removals: list[float]

    def world(self, sample: Sample, attachment: Path | None) -> Any:
        return _Watched(super().world(sample, attachment), self.removals.append)


def live(folder: str, port: int, samples: int, image: str) -> Result:
    """Record samples of one command, one after the other, in real containers; and bare containers.

    Seconds of wall. The first sample, which finds engine and image, is left out.
    """
    root = Path(folder)
    workload = Workload(samples + 1, 1)
    workload.write_dataset(root / "data")
    config = config_of(dataset_of(root / "data"), RUN, loop_of(1))
    sandbox = {"image": image, "network": False}
    config.settings = msgspec.structs.replace(config.settings, sandbox=sandbox)
    backend = _WatchedBackend(
        RUN,
        config.settings,
        api_url=f"http://127.0.0.1:{port}/v1",
        api_key="none",
        progress=lambda line: None,
    )
    backend.removals = []
    bare = [_bare_container(image) for _ in range(samples // 2 + 1)][1:]
    ends = _Ends()
    done = take(Store(root / "store"), config, backend, ends)
    bare += [_bare_container(image) for _ in range(samples // 2)]
    return {
        "right": done.report.metrics["right"],
        "samples_s": [b - a for a, b in itertools.pairwise(ends.at)],
        "bare_s": bare,
        "removals_s": backend.removals[1:],
    }


class _Ends(Quiet):
    """Notes when each sample is finished."""

    def __init__(self) -> None:
        super().__init__()
        self.at: list[float] = []

    def sample(self, result: SampleResult) -> None:
        self.at.append(time.perf_counter())


def _bare_container(image: str) -> float:
    """What a container costs anyone: create, start, one command, remove."""
    import docker

    client = docker.from_env()
    began = time.perf_counter()
    container = client.containers.create(
        image, ["sleep", "infinity"], network_mode="none", mem_limit="4g", pids_limit=512, init=True
    )
    container.start()
    container.exec_run(["bash", "-c", "true"])
    container.remove(force=True)
    took = time.perf_counter() - began
    client.close()
    return took


TASKS: dict[str, Callable[..., Result]] = {
    function.__name__: function
    for function in (
        make, replay, parts, depth, recorder, recording_memory, long_sample, big_output,
        many_samples, many_runs, in_flight, live,
    )
}  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
