"""The vocabulary of the scripted policy: what a move is, and how it reads the history."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """One tool call; a text as `arguments` is sent as it stands, be it valid JSON or not."""

    tool: str
    arguments: str | Mapping[str, str]

    def text(self) -> str:
        """The arguments as the model would have written them."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True)
class Move:
    """One turn of the scripted model.

    `read` is a regular expression with one group. It is searched in the results of the calls of
    the turn before, the last result first, and what it finds stands for `@READ@` in this move;
    where it finds nothing, `otherwise` does (a wrong answer, said so where it is written).
    """

    text: str
    calls: tuple[Call, ...] = ()
    read: str = ""
    otherwise: str = ""
    reasoning: str = ""
    refusal: str = ""
    finish: str = ""
    overflow: bool = False

    def filled(self, file: str, results: Sequence[str]) -> Move:
        """The move with the attachment's path and what was read put in."""
        found = first_match(self.read, results) if self.read else None
        value = self.otherwise if found is None else found

        def fill(text: str) -> str:
            return text.replace("@FILE@", file).replace("@READ@", value)

        def filled(call: Call) -> Call:
            if isinstance(call.arguments, str):
                return replace(call, arguments=fill(call.arguments))
            return replace(call, arguments={k: fill(v) for k, v in call.arguments.items()})

        return replace(self, text=fill(self.text), calls=tuple(map(filled, self.calls)))


@dataclass(frozen=True)
class Branch:
    """Two moves, chosen by whether `seen` is found in the results of the turn before."""

    seen: str
    then: Move
    otherwise: Move


def first_match(pattern: str, results: Sequence[str]) -> str | None:
    """What the pattern's group holds in the last of the results that has a match."""
    for result in reversed(results):
        if found := re.search(pattern, result, re.MULTILINE):
            return found[1] if found.re.groups else found[0]
    return None


def step_of(messages: Sequence[Message]) -> int:
    """How many turns the model has had."""
    return sum(message.get("role") == "assistant" for message in messages)


def last_results(messages: Sequence[Message]) -> list[str]:
    """The texts of the tool messages since the model's last turn."""
    results: list[str] = []
    for message in reversed(messages):
        if message.get("role") == "assistant":
            break
        if message.get("role") == "tool":
            results.append(text_of(message))
    return results[::-1]


def text_of(message: Message) -> str:
    """A message's content, be it a text or a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, Mapping)]
        return "".join(str(part) for part in parts)
    return content if isinstance(content, str) else ""


def turn(text: str, *calls: Call, **more: Any) -> Move:
    """A turn with a thought and any number of calls."""
    return Move(text, calls, **more)


def bash(command: str) -> Call:
    return Call("bash", {"command": textwrap.dedent(command).strip("\n")})


def python(program: str) -> Call:
    """A Python program, given to bash as a here-document."""
    body = textwrap.dedent(program).strip("\n")
    return bash(f"python3 - <<'EOF'\n{body}\nEOF")


def submit(answer: str) -> Call:
    return Call("submit", {"answer": answer})
