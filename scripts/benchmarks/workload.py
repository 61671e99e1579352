"""An invented recording of GAIA's size: 165 samples of 20 steps, each with one bash command.

Nothing in it comes from a data set or a model. The same numbers give the same bytes. Outputs are
3.8 KB on average, log-normally distributed, a quarter of them drawn from a small pool, so that
they come again; 165 x 20 steps hold about 12.9 MB of distinct content.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

MODEL = "invented-model"
ANSWER = "42"
"""Of every sample; also its truth."""
REPEATED = 0.25
"""Outputs that are drawn from the pool."""
POOL = 60

_WORDS = [
    "harbour", "lantern", "orchard", "velvet", "copper", "meridian", "thistle", "granite",
    "willow", "ember", "quartz", "saddle", "ribbon", "tundra", "cobalt", "falcon", "marble",
    "juniper", "anchor", "bellows", "cipher", "dynamo", "estuary", "fjord", "gable", "heather",
    "isthmus", "jetty", "kiln", "lichen", "mortar", "nettle", "oxide", "plinth", "quarry",
    "rudder", "sextant", "timber", "vessel", "weir", "the", "of", "and", "in", "to", "with",
    "from", "over", "under", "beside", "between", "after", "before",
]  # fmt: skip
_COMMANDS = (
    "ls -la /shared_files",
    "python3 - <<'EOF'\nimport csv\nrows = list(csv.reader(open('{name}.csv')))\n"
    "print(len(rows), rows[:{n}])\nEOF",
    "grep -n '{name}' notes_{n}.txt | head -40",
    "curl -s https://example.org/{name}/{n} | head -c 4000",
    "sed -n '{n},+60p' {name}.log",
)


def _sentence(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(_WORDS, k=words)).capitalize() + "."


def _name(draw: random.Random) -> str:
    return "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(4, 9)))


def _page(draw: random.Random) -> str:
    link = f'<a href="/{_name(draw)}/{draw.randint(1, 999)}">{_name(draw)}</a>'
    return f"<p>{_sentence(draw, draw.randint(10, 30))} {link} \u2013 {_sentence(draw, 6)}</p>\n"


def _row(draw: random.Random) -> str:
    day = f"{draw.randint(1990, 2029)}-{draw.randint(1, 12):02d}-{draw.randint(1, 28):02d}"
    return f"{draw.randint(1, 99999)},{day},{_name(draw)},{draw.uniform(-40, 40):.3f}\n"


def _log(draw: random.Random) -> str:
    return f"{draw.randint(1, 9999)}:\t{_sentence(draw, draw.randint(8, 24))}\n"


def _listing(draw: random.Random) -> str:
    size, day = draw.randint(10, 9_999_999), draw.randint(1, 28)
    return f"-rw-r--r-- 1 root root {size:>8} May {day:>2} 12:{day:02d} {_name(draw)}.txt\n"


_KINDS: tuple[Callable[[random.Random], str], ...] = (_page, _page, _row, _log, _listing)


def _output(draw: random.Random) -> str:
    size = min(16_000, max(200, draw.lognormvariate(8.06, 0.55)))
    kind = draw.choice(_KINDS)
    lines: list[str] = []
    length = 0
    while length < size:
        lines.append(kind(draw))
        length += len(lines[-1])
    return "".join(lines)


class Workload:
    """The samples: their questions, the replies of the model, the outputs of the commands."""

    def __init__(self, samples: int = 165, steps: int = 20, command: str | None = None) -> None:
        """Drawn sample by sample, so that fewer samples are the first ones of more.

        `command`: one that is to be run for real, in place of the invented ones.
        """
        self.samples, self.steps = samples, steps
        draw = random.Random(8)
        pool = [_output(draw) for _ in range(POOL)]
        self.questions: list[str] = []
        self.outputs: list[list[str]] = []
        self.responses: list[list[dict[str, Any]]] = []
        """Chat completions as an endpoint sends them; the last one submits the answer."""
        for number in range(samples):
            draw = random.Random(1_000_003 + number)
            text = " ".join(_sentence(draw, 15) for _ in range(5))
            self.questions.append(f"Task {number:05d}. {text}")
            outputs: list[str] = []
            responses: list[dict[str, Any]] = []
            for step in range(steps):
                again = draw.random() < REPEATED
                outputs.append(draw.choice(pool) if again else _output(draw))
                drawn = draw.choice(_COMMANDS).format(name=_name(draw), n=draw.randint(2, 60))
                arguments = {"command": command or drawn}
                responses.append(_response(draw, number, step, "bash", arguments))
            responses.append(_response(draw, number, steps, "submit", {"answer": ANSWER}))
            self.outputs.append(outputs)
            self.responses.append(responses)

    @staticmethod
    def task_id(number: int) -> str:
        """The id of a sample by its place."""
        return f"{number:05d}"

    @cached_property
    def bodies(self) -> list[list[bytes]]:
        """The responses as they are sent."""
        return [
            [json.dumps(response, separators=(",", ":")).encode() for response in responses]
            for responses in self.responses
        ]

    def distinct(self) -> tuple[int, int]:
        """Bytes of distinct content: of the whole, and summed over samples, each by itself."""
        whole: set[bytes] = set()
        apart = 0
        for question, outputs, bodies in zip(
            self.questions, self.outputs, self.bodies, strict=True
        ):
            own = {question.encode(), *(output.encode() for output in outputs), *bodies}
            apart += sum(map(len, own))
            whole |= own
        return sum(map(len, whole)), apart

    def write_dataset(self, folder: Path) -> None:
        """The questions in GAIA's layout."""
        write_questions(folder, self.questions)


def write_questions(folder: Path, questions: Sequence[str]) -> None:
    """A data set in GAIA's layout; the answer is the same for all."""
    target = folder / "2023" / "validation"
    target.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "task_id": Workload.task_id(number),
            "Question": question,
            "Level": 1 + number % 3,
            "Final answer": ANSWER,
            "file_name": "",
            "file_path": "",
            "Annotator Metadata": {},
        }
        for number, question in enumerate(questions)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (target / "metadata.jsonl").write_text(lines, encoding="utf-8")


def _response(
    draw: random.Random, number: int, step: int, tool: str, arguments: dict[str, str]
) -> dict[str, Any]:
    asked, told = 700 + 1300 * step, draw.randint(60, 180)
    call = {
        "id": f"call_{draw.getrandbits(120):030x}",
        "type": "function",
        "function": {"name": tool, "arguments": json.dumps(arguments)},
    }
    return {
        "id": f"chatcmpl-{draw.getrandbits(120):030x}",
        "object": "chat.completion",
        "created": 1_764_000_000 + 1000 * number + step,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": _sentence(draw, draw.randint(15, 35)),
                    "refusal": None,
                    "annotations": [],
                    "tool_calls": [call],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": asked,
            "completion_tokens": told,
            "total_tokens": asked + told,
            "prompt_tokens_details": {"cached_tokens": asked // 2, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
        "service_tier": "default",
        "system_fingerprint": f"fp_{draw.getrandbits(40):010x}",
    }
