"""One question of the data set, with its truth and its attachment."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

FAMILY = uuid.uuid5(uuid.NAMESPACE_DNS, "mini.gaia-harness.invalid")


@dataclass(frozen=True)
class Task:
    """A sample as its authors know it; `key` is its name among them, its id is made from it."""

    key: str
    level: int
    question: str
    truth: str
    steps: tuple[str, ...]
    minutes: int
    tools: tuple[str, ...] = ("Python",)
    ending: str = ""
    attachment: bytes = b""

    @property
    def task_id(self) -> str:
        return str(uuid.uuid5(FAMILY, self.key))

    @property
    def file_name(self) -> str:
        return f"{self.task_id}.{self.ending}" if self.ending else ""

    def row(self, split: str) -> dict[str, object]:
        """The sample's line of `metadata.jsonl`."""
        minutes = f"{self.minutes} minute{'s' if self.minutes != 1 else ''}"
        return {
            "task_id": self.task_id,
            "Question": self.question,
            "Level": self.level,
            "Final answer": self.truth,
            "file_name": self.file_name,
            "file_path": f"{split}/{self.file_name}" if self.file_name else "",
            "Annotator Metadata": {
                "Steps": "\n".join(f"{i}. {step}" for i, step in enumerate(self.steps, 1)),
                "Number of steps": str(len(self.steps)),
                "How long did this take?": minutes,
                "Tools": "\n".join(f"{i}. {tool}" for i, tool in enumerate(self.tools, 1)),
                "Number of tools": str(len(self.tools)),
            },
        }


def numbers(seed: int, low: int, high: int) -> Iterator[int]:
    """An endless repeatable sequence of whole numbers from `low` to `high`, both included."""
    while True:
        seed = (seed * 1103515245 + 12345) % 2**31
        yield low + (seed >> 12) % (high - low + 1)
