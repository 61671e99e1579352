"""Kill recordings at random instants and prove that nothing paid is lost or paid again.

python -m tests.live.crashes --kills 200 --log docs/evidence/crashes.txt      the long profile
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from harness.cassette import read_cassette
from harness.runfile import read_run
from harness.store import Store
from tests.live.line import (
    RUN,
    Policy,
    command,
    containers_of,
    environment,
    harness,
    policy,
    recording,
)

# tasks whose recorded commands print the same every time
TASKS = (
    "0fc54604-e3a1-53a1-85fb-d560276743b9",
    "e7740b84-eac2-5af2-93be-540010a590be",
    "df0d3dc6-82db-50ed-979c-8f19b7b139e0",
    "51339a62-1ec0-54f0-b9db-b0240f81a1aa",
    "06570f25-ea15-53ee-9264-6ad5a1eb6610",
    "489b3b65-2f78-5bf2-bb15-c97ed388ee6b",
    "62aaae88-5bf0-5def-81a1-7694f9df8ff6",
    "a3d98b89-adf8-56f5-863d-688f672fbf17",
)
IN_FLIGHT = 4

Say = Callable[[str], None]


def arguments(store: Path, server: Policy) -> list[str]:
    chosen = [part for task in TASKS for part in ("--task-id", task)]
    # none of these commands is slow, but a crowded machine may be
    more = ("--eval-batch-size", str(IN_FLIGHT), "--command-timeout", "120", "--json")
    return recording(store, server, *chosen, *more)


def trajectories(store: Path) -> dict[str, str]:
    """Trajectory digest by task id, from the sealed cassettes."""
    found = {}
    opened = Store(store)
    for entry in read_run(opened, RUN).samples:
        assert entry.cassette is not None, entry.task_id
        end = read_cassette(opened, entry.cassette, entry.task_id).end
        assert end is not None
        found[entry.task_id] = end.trajectory
    return found


def maybe_paid(store: Path) -> dict[str, int]:
    """How many requests of each sample were sent without a reply that came back, as recorded."""
    opened = Store(store)
    found = {}
    for entry in read_run(opened, RUN).samples:
        assert entry.cassette is not None
        end = read_cassette(opened, entry.cassette, entry.task_id).end
        assert end is not None
        found[entry.task_id] = end.totals.maybe_paid
    return found


def crash_test(folder: Path, kills: int, seed: int, say: Say) -> None:
    """Kill recordings until `kills` were killed; AssertionError when a promise breaks."""
    draw = random.Random(seed)
    with policy(folder / "undisturbed", "--delay", "0.3") as server:
        started = time.monotonic()
        done = harness(*arguments(folder / "one", server))
        assert done.returncode == 0, done.stderr
        seconds, calls = time.monotonic() - started, server.completions()
    expected = trajectories(folder / "one")
    say(f"undisturbed: {calls} calls in {seconds:.1f} s; seed {seed}, {IN_FLIGHT} in flight")
    killed = round_number = 0
    while killed < kills:
        round_number += 1
        store, log = folder / f"round{round_number}", folder / f"log{round_number}"
        slow = ("--log", str(log), "--delay", "0.3")
        with policy(folder / f"server{round_number}", *slow) as server:
            here = 0
            while True:
                process = subprocess.Popen(
                    command(*arguments(store, server)),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment(),
                )
                # after some kills of one recording, let it finish
                delay = draw.uniform(0.3, seconds) if killed < kills and here < 12 else 600.0
                try:
                    status = process.wait(delay)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    killed, here = killed + 1, here + 1
                    continue
                assert status == 0, f"round {round_number}: exit {status}"
                break
            _check(store, log, server, expected, calls, here)
        say(f"round {round_number}: {here} kills, {killed} in all; {_told(store, log)}")
    done = harness("clean")
    assert done.returncode == 0
    assert containers_of(RUN) == []
    say(f"{killed} kills: no recorded reply was asked for again; trajectories are the undisturbed")


def _asked(log: Path) -> Counter[tuple[str, int]]:
    """How often each step of each sample was asked for."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return Counter((line["task_id"], line["step"]) for line in lines)


def _check(
    store: Path, log: Path, server: Policy, expected: dict[str, str], calls: int, kills: int
) -> None:
    found = trajectories(store)
    other = [task for task in expected if found[task] != expected[task]]
    assert not other, f"other trajectories than undisturbed: {other}"
    paid = maybe_paid(store)
    assert server.completions() <= calls + sum(paid.values())
    assert sum(paid.values()) <= kills * IN_FLIGHT
    extra: Counter[str] = Counter()
    for (task, _), times in _asked(log).items():
        extra[task] += times - 1
    for task, times in extra.items():
        assert times <= paid[task], f"{task}: {times} repeated, {paid[task]} counted"
    assert harness("verify", "--store", str(store)).returncode == 0
    assert Store(store).all_journals() == []


def _told(store: Path, log: Path) -> str:
    repeated = sum(times - 1 for times in _asked(log).values())
    return f"{repeated} replies asked for twice, {sum(maybe_paid(store).values())} maybe paid"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, help="keep what is said in this file")
    options = parser.parse_args()
    kept: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        kept.append(line)

    with tempfile.TemporaryDirectory() as folder:
        crash_test(Path(folder), options.kills, options.seed, say)
    if options.log:
        options.log.write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
