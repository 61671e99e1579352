"""The scripts of the demo's scripted model: what it does next in each sample of `mini`.

This is no language model. It is a policy written by hand that plays one: for each question of the
packaged data set there is a list of moves, some of which depend on what the tools really gave
back. It is meant to make about sixty percent of the answers right and to run into whatever a real
agent runs into: failed commands, a timeout, broken arguments, a refusal, a full context.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mini_source.level1 import LEVEL_1
from mini_source.level2 import LEVEL_2
from mini_source.level3 import LEVEL_3
from mini_source.task import Task

from .level1 import SCRIPTS_1
from .level2 import SCRIPTS_2
from .level3 import SCRIPTS_3
from .moves import Branch, Message, Move, first_match, last_results, step_of, text_of

TASKS = {task.key: task for task in (*LEVEL_1, *LEVEL_2, *LEVEL_3)}
SCRIPTS: dict[str, list[Move | Branch]] = {**SCRIPTS_1, **SCRIPTS_2, **SCRIPTS_3}


def task_of(messages: Sequence[Message]) -> Task | None:
    """The sample whose question stands somewhere in the first user message."""
    asked = next((text_of(m) for m in messages if m.get("role") == "user"), "")
    flat = " ".join(asked.split())
    return next((t for t in TASKS.values() if " ".join(t.question.split()) in flat), None)


def next_move(task: Task, messages: Sequence[Message]) -> Move:
    """The task's next move after this history; past the end its last move comes again."""
    script = SCRIPTS[task.key]
    step = step_of(messages)
    move = script[min(step, len(script) - 1)]
    results = last_results(messages)
    if isinstance(move, Branch):
        seen = first_match(move.seen, results) is not None
        move = move.then if seen else move.otherwise
    return move.filled(f"/shared_files/{task.file_name}", results)


def problems() -> list[str]:
    """What is wrong with the scripts themselves, in words."""
    found = [f"{key}: no script" for key in TASKS.keys() - SCRIPTS.keys()]
    found += [f"{key}: no such question" for key in SCRIPTS.keys() - TASKS.keys()]
    for key, script in SCRIPTS.items():
        for move in script:
            for one in (move.then, move.otherwise) if isinstance(move, Branch) else (move,):
                if re.compile(one.read).groups > 1:
                    found.append(f"{key}: {one.read!r} has more than one group")
    return found
