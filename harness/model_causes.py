"""The likely cause of a difference between two model requests, part by part.

What is told apart here rests on what a tape proves: all messages of the request before were sent
alike (else the replay had stopped there), outputs of commands are on the tape, and so is the
question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness import canonical
from harness.cassette import Tape
from harness.causes import ORDER, Likely
from harness.cuts import outputs_before, shown_otherwise
from harness.difference import ABSENT, Difference, first_difference, shorten
from harness.records import Message

SHORTENING = "shortening of the history"
REASONING = "reasoning sent back"
TOOL_TEXT = "text of tool messages"

SYSTEM = "system prompt"

_SYSTEM_ROLES = ("system", "developer")


# ------------------------------------------------------------------------ model, params and tools


def of_model(recorded: str, asked: str) -> Likely | None:
    """Why the model differs; None where it does not."""
    found = first_difference(recorded, asked)
    if found is None:
        return None
    return Likely("model", "The replay runs under another model name.", found.under("model"))


def of_params(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> Likely | None:
    """Which generation parameters differ; None where none does."""
    found = first_difference(recorded, asked)
    if found is None:
        return None
    keys = sorted(
        key
        for key in {*recorded, *asked}
        if first_difference(recorded.get(key, ABSENT), asked.get(key, ABSENT))
    )
    names = _listed(keys)
    one = len(keys) == 1
    how = "changed"
    if one and len(found.path) == 1:
        how = "added" if found.recorded is ABSENT else "left out" if found.asked is ABSENT else how
    cause = f"generation parameter{'' if one else 's'}: {names}"
    return Likely(
        cause, f"{names} {'is' if one else 'are'} {how} in this replay.", found.under("params")
    )


def of_tools(recorded: Sequence[Any], asked: Sequence[Any]) -> Likely | None:
    """Which tool schemas were added, removed, edited or moved; None where none was."""
    found = first_difference(recorded, asked)
    if found is None:
        return None
    old, new = [_tool_name(tool) for tool in recorded], [_tool_name(tool) for tool in asked]
    added = [name for name in new if name not in old]
    removed = [name for name in old if name not in new]
    by_name = dict(zip(old, recorded, strict=True))
    edited = [
        name
        for name, tool in zip(new, asked, strict=True)
        if name in by_name and first_difference(by_name[name], tool)
    ]
    causes = [f"tool added: {_listed(added)}"] if added else []
    causes += [f"tool removed: {_listed(removed)}"] if removed else []
    causes += [f"tool schema: {_listed(edited)}"] if edited else []
    if removed:
        at = old.index(removed[0])
        found = Difference((at,), recorded[at], ABSENT)
    elif added:
        at = new.index(added[0])
        found = Difference((at,), ABSENT, asked[at])
    elif old != new:
        at = next(i for i, names in enumerate(zip(old, new, strict=False)) if names[0] != names[1])
        found = Difference((at,), old[at], new[at])
        causes.append("order of tools")
    detail = "The schemas that the loop sends come from the installed code and its tool servers."
    return Likely("; ".join(causes or ["tools"]), detail, found.under("tools"))


def _tool_name(tool: Any) -> str:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else "(no name)"


def _listed(names: Sequence[str], most: int = 4) -> str:
    shown = [shorten(name, 40) for name in names[:most]]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


# ---------------------------------------------------------------------------------------- messages


def of_messages(
    tape: Tape,
    index: int,
    recorded: Sequence[Message],
    before: Sequence[Message],
    asked: Sequence[Message],
) -> Likely | None:
    """Why the history of effect `index` differs; None where it does not.

    `before` is the recorded history of the model request before.
    """
    pairs = zip(recorded, asked, strict=False)
    differing = [at for at, pair in enumerate(pairs) if first_difference(*pair)]
    if not differing and len(recorded) == len(asked):
        return None
    at = differing[0] if differing else min(len(recorded), len(asked))
    outputs = list(outputs_before(tape, index))
    if _reordered(recorded[at:], asked[at:]):
        found = first_difference(recorded[at], asked[at]) or Difference((), None, None)
        detail = "The same tool messages stand in another order."
        return Likely(ORDER, detail, found.under("messages", at))
    gone = at == len(asked) or (at < len(recorded) and _holds(recorded[at + 1 :], asked[at]))
    more = at == len(recorded) or (at < len(asked) and _holds(asked[at + 1 :], recorded[at]))
    if gone and more:
        found = Difference(("messages", at), _brief(recorded[at]), _brief(asked[at]))
        return Likely("order of messages", "The same messages stand in another order.", found)
    if gone or more:
        messages, how = (recorded, "left out") if gone else (asked, "added")
        name = _subject(messages, at, ran=bool(outputs))
        old, new = _brief(messages[at]), ABSENT
        found = Difference(("messages", at), *((old, new) if gone else (new, old)))
        if at < len(before) and name != SYSTEM:
            detail = f"An older {name} was {how}: only one of both shortens its history here."
            return Likely(SHORTENING, detail, found)
        return Likely(f"{name} {how}", f"One {name} is {how} in what the loop sends now.", found)
    likely = _changed(tape, recorded, before, asked, at, outputs)
    others = len(differing) - 1
    if others and len(recorded) == len(asked):
        differ = "One more message differs" if others == 1 else f"{others} more messages differ"
        likely = likely._replace(detail=f"{likely.detail} {differ}.")
    return likely


def _holds(messages: Sequence[Message], message: Message) -> bool:
    return any(first_difference(message, other) is None for other in messages)


def _reordered(recorded: Sequence[Message], asked: Sequence[Message]) -> bool:
    """Whether both go on with the same tool messages, or tool texts, in another order."""
    old, new = _tool_messages(recorded), _tool_messages(asked)
    if len(old) < 2 or len(old) != len(new):
        return False
    texts, now = [m.get("content") for m in old], [m.get("content") for m in new]
    try:
        return _bag(old) == _bag(new) or (
            first_difference(texts, now) is not None and _bag(texts) == _bag(now)
        )
    except ValueError:  # too deep for canonical bytes: not something to be sorted
        return False


def _tool_messages(messages: Sequence[Message]) -> Sequence[Message]:
    """Those at the front."""
    stop = 0
    while stop < len(messages) and messages[stop].get("role") == "tool":
        stop += 1
    return messages[:stop]


def _bag(values: Sequence[Any]) -> list[bytes]:
    return sorted(map(canonical.dumps, values))


def _subject(messages: Sequence[Message], at: int, *, ran: bool) -> str:
    """What a message is for, by role and place; `ran`: commands ran since the turn before."""
    role = messages[at].get("role")
    if role in _SYSTEM_ROLES and all(m.get("role") in _SYSTEM_ROLES for m in messages[:at]):
        return SYSTEM
    last = messages[at - 1] if at else {}
    answers_text = last.get("role") == "assistant" and not last.get("tool_calls")
    if role == "user" and answers_text and not ran:
        return "reminder"
    return f"{shorten(str(role), 40)} message"


def _brief(message: Message) -> Any:
    """A message that stands alone, as text where it is one."""
    content = message.get("content")
    return f"{message.get('role')}: {content}" if isinstance(content, str) and content else message


def _changed(
    tape: Tape,
    recorded: Sequence[Message],
    before: Sequence[Message],
    asked: Sequence[Message],
    at: int,
    outputs: Sequence[str],
) -> Likely:
    """A message that both sides have, with different content."""
    old, new = recorded[at], asked[at]
    keys = {k for k in {*old, *new} if first_difference(old.get(k, ABSENT), new.get(k, ABSENT))}
    found = (first_difference(old, new) or Difference((), old, new)).under("messages", at)
    name = _subject(recorded, at, ran=bool(outputs))
    if "role" in keys:
        if len(keys) > 1:
            found = Difference(("messages", at), _brief(old), _brief(new))
        other = _subject(asked, at, ran=bool(outputs))
        cause = f"{name} replaced by {other}" if other != name else f"role of the {name}"
        return Likely(cause, f"Another kind of message stands in the place of a {name}.", found)
    if name == SYSTEM:
        return _prompt(tape, found, SYSTEM)
    if name == "assistant message" and keys == {"reasoning_content"}:
        does = "now sends" if "reasoning_content" in new else "no longer sends"
        return Likely(REASONING, f"The loop {does} the model's own reasoning back to it.", found)
    if at < len(before):
        return Likely(SHORTENING, f"An older {name} {_rewriter(before[at], old, new)}.", found)
    if name == "user message" and all(m.get("role") != "user" for m in recorded[:at]):
        return _prompt(tape, found, "prompt template or question")
    if name == "assistant message":
        detail = f"The loop sends the model's own message back changed ({_listed(sorted(keys))})."
        return Likely(name, detail, found)
    if keys == {"tool_call_id"}:
        return Likely("tool call ids", "Only the id that a tool message echoes differs.", found)
    if outputs and isinstance(found.recorded, str) and isinstance(found.asked, str):
        shown = shown_otherwise(tape, found, outputs)
        if shown:
            return shown
    cause = TOOL_TEXT if name == "tool message" else name
    return Likely(cause, f"The loop words a {name} in another way.", found)


def _rewriter(before: Message, recorded: Message, asked: Message) -> str:
    if first_difference(before, recorded) is None:
        return "was left as it was when recorded, and is shortened or rewritten by the loop now"
    if first_difference(before, asked) is None:
        return "was shortened or rewritten when recorded, and is left as it was by the loop now"
    return "was shortened or rewritten both times, but not alike"


# ----------------------------------------------------------------------------------------- prompts


def _prompt(tape: Tape, found: Difference, otherwise: str) -> Likely:
    """Template, question or attachment: told apart by the sample that the tape names."""
    old, new, sample = found.recorded, found.asked, tape.header.sample
    if isinstance(old, str) and isinstance(new, str):
        question = sample.question.strip()
        if _exchanged(old, new, question):
            detail = "The question is another one; the words around it are the recorded ones."
            return Likely("question", detail, found)
        if _exchanged(old, new, sample.file_name):
            return Likely("attachment", "The attachment's name is another one, or none.", found)
        if otherwise != SYSTEM and question and question in old and question in new:
            detail = "The question is the recorded one; the words around it are not."
            return Likely("prompt template", detail, found)
    what = "system prompt" if otherwise == SYSTEM else "user's first message"
    return Likely(otherwise, f"The {what} that the loop sends now is not the recorded one.", found)


def _exchanged(old: str, new: str, part: str) -> bool:
    """Whether the second text is the first with something else in the place of `part`."""
    if not part or part not in old or part in new:
        return False
    head, _, tail = old.partition(part)
    room = len(new) - len(head) - len(tail)
    return room >= 0 and new.startswith(head) and new.endswith(tail)
