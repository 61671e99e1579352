"""Where two JSON values first differ, and how to show that in little room.

Pure functions. "Differ" means that the canonical bytes differ, so `1` and `1.0` are the same, and
`1` and `true` are not. "First" goes by the canonical order of keys, so that it does not depend on
how a dict was built. Time is linear in the values' size and nesting costs no recursion: what is
compared here was written by models and may be of any shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from harness import canonical

EXCERPT = 160
"""Characters of an excerpt, at most."""
WORDS = 480
"""Characters of a word diff, at most."""

_BEFORE = 40  # characters shown in front of a difference, and behind it
_PIECE = 120  # characters of one changed stretch that are shown
_WINDOW = 400  # characters of each text that are compared word by word
_TOKEN = re.compile(r"\w{1,40}|\s{1,40}|[^\w\s]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Absent:
    """The type of ABSENT, which stands where one of two values is not there at all."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()

Path = tuple[str | int, ...]


class Difference(NamedTuple):
    """The first place where two values differ, and what stands there; either may be ABSENT."""

    path: Path
    recorded: Any
    asked: Any

    def under(self, *path: str | int) -> Difference:
        """The same difference, seen from a value that holds both under `path`."""
        return self._replace(path=path + self.path)


_Link = tuple[Any, str | int] | None  # a path as a chain, so that deep values stay cheap


def first_difference(recorded: Any, asked: Any) -> Difference | None:
    """The first difference of two JSON values, or None when their canonical bytes are equal."""
    todo: list[tuple[_Link, Any, Any]] = [(None, recorded, asked)]
    while todo:
        link, old, new = todo.pop()
        if old is new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            keys, old, new = _keys(old, new)
            todo.extend(
                ((link, key), old.get(key, ABSENT), new.get(key, ABSENT)) for key in reversed(keys)
            )
        elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
            todo.extend(
                ((link, at), _item(old, at), _item(new, at))
                for at in reversed(range(max(len(old), len(new))))
            )
        elif not _same(old, new):
            return Difference(_path(link), old, new)
    return None


def _keys(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[list[str], Mapping[str, Any], Mapping[str, Any]]:
    if old.keys() != new.keys():
        # a key written as two surrogates is the same key
        old = {canonical.join_pairs(key): value for key, value in old.items()}
        new = {canonical.join_pairs(key): value for key, value in new.items()}
    keys = sorted(old.keys() | new.keys(), key=lambda key: key.encode("utf-16-be", "surrogatepass"))
    return keys, old, new


def _item(items: list[Any] | tuple[Any, ...], at: int) -> Any:
    return items[at] if at < len(items) else ABSENT


def _same(old: Any, new: Any) -> bool:
    if old is ABSENT or new is ABSENT:
        return False
    if isinstance(old, str) and isinstance(new, str):
        return old == new or canonical.join_pairs(old) == canonical.join_pairs(new)
    containers = Mapping, list, tuple
    if isinstance(old, containers) or isinstance(new, containers):
        return False
    return canonical.dumps(old) == canonical.dumps(new)


def _path(link: _Link) -> Path:
    path: list[str | int] = []
    while link is not None:
        link, key = link
        path.append(key)
    return tuple(reversed(path))


# -------------------------------------------------------------------------------------- showing


def path_text(path: Path) -> str:
    """`messages[0].content`; odd keys are quoted, a long path loses its middle."""
    if len(path) > 16:
        return f"{path_text(path[:8])}…{path_text(path[-8:])}"
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif _NAME.fullmatch(key):
            text += f".{shorten(key, 40)}"
        else:
            text += f"[{json.dumps(shorten(key, 40), ensure_ascii=False)}]"
    return encodable(text.removeprefix("."))


def excerpts(difference: Difference) -> tuple[str | None, str | None]:
    """What stands on each side, cut to the place of the difference; None where nothing is."""
    old, new = _texts(difference)
    start = max(0, common_prefix(old or "", new or "") - _BEFORE)
    return _window(old, start), _window(new, start)


def _texts(difference: Difference) -> tuple[str | None, str | None]:
    old, new = difference.recorded, difference.asked
    # text is shown as it is, unless only quotes can tell it from the other side's value
    bare = all(value is ABSENT or isinstance(value, str) for value in (old, new))
    return _text(old, bare), _text(new, bare)


def _text(value: Any, bare: bool) -> str | None:
    if value is ABSENT:
        return None
    if bare:
        return str(value)
    try:
        return canonical.dumps(value).decode()
    except ValueError:
        return f"(a deeply nested {'object' if isinstance(value, Mapping) else 'list'})"


def _window(text: str | None, start: int) -> str | None:
    if text is None:
        return None
    room = EXCERPT - 2
    cut = text[start : start + room]
    return encodable(f"{'…' if start else ''}{cut}{'…' if len(text) > start + room else ''}")


def shorten(text: str, most: int) -> str:
    """The text in at most so many characters, without its end where it is longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


def encodable(text: str) -> str:
    r"""The text with lone surrogates written as `\udxxx`, so that every encoder takes it."""
    return text.encode("utf-8", "backslashreplace").decode()


def common_prefix(old: str, new: str) -> int:
    """How many characters two texts begin with together (by bisection)."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def common_suffix(old: str, new: str, prefix: int = 0) -> int:
    """How many characters two texts end with together, behind their first `prefix` ones."""
    low, high = 0, min(len(old), len(new)) - prefix
    while low < high:
        middle = (low + high + 1) // 2
        if (
            old[len(old) - middle : len(old) - low]
            == new[len(new) - middle : len(new) - low]
        ):  # fmt: skip
            low = middle
        else:
            high = middle - 1
    return low


# ---------------------------------------------------------------------------------------- words


def difference_words(difference: Difference) -> str:
    """The differing words of both sides; "" where nothing can be set beside anything."""
    old, new = _texts(difference)
    return word_diff(old, new) if old is not None and new is not None else ""


def word_diff(old: str, new: str) -> str:
    """The first stretch where two texts differ, word by word, as `be [-careful-]{+quick+} now`."""
    start = common_prefix(old, new)
    end = common_suffix(old, new, start)
    start = _word_start(old, new, start)
    end = _word_end(old, new, end)
    before, after = old[:start], old[len(old) - end :]
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    cut = max(len(old), len(new)) > _WINDOW
    pieces = _pieces(_TOKEN.findall(old[:_WINDOW]), _TOKEN.findall(new[:_WINDOW]), cut)
    text = ("…" if len(before) > _BEFORE else "") + before[-_BEFORE:]
    for kind, was, now in pieces:
        if len(text) > WORDS - 2 * (_PIECE + _BEFORE):
            cut = True
            break
        if kind == "equal":
            text += _middle(was)
        else:
            text += f"[-{shorten(was, _PIECE)}-]" if was else ""
            text += f"{{+{shorten(now, _PIECE)}+}}" if now else ""
    text += "…" if cut else after[:_BEFORE] + ("…" if len(after) > _BEFORE else "")
    return encodable(text)


def _word_start(old: str, new: str, start: int) -> int:
    """Back to the beginning of the word in which the texts part."""
    if not (_is_word(old[start : start + 1]) or _is_word(new[start : start + 1])):
        return start
    back = start
    while back and start - back < _BEFORE and _is_word(old[back - 1]):
        back -= 1
    return back


def _word_end(old: str, new: str, end: int) -> int:
    """On to the end of the word in which the texts meet again (both counted from the end)."""
    if not (_is_word(_from_end(old, end)) or _is_word(_from_end(new, end))):
        return end
    on = end
    while on and end - on < _BEFORE and _is_word(_from_end(old, on - 1)):
        on -= 1
    return on


def _from_end(text: str, count: int) -> str:
    at = len(text) - count - 1
    return text[at] if at >= 0 else ""


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _pieces(old: list[str], new: list[str], cut: bool) -> list[tuple[str, str, str]]:
    """Stretches of words: kind, recorded text, asked text."""
    from difflib import SequenceMatcher  # only a divergence needs it

    matcher = SequenceMatcher(None, old, new, autojunk=False)
    found: list[tuple[str, str, str]] = []
    alike = 0
    for kind, low, high, start, stop in matcher.get_opcodes():
        was, now = "".join(old[low:high]), "".join(new[start:stop])
        if kind == "equal":
            alike += len(was.strip())
        found.append(("equal" if kind == "equal" else "changed", was, now))
    if alike * 4 < min(len("".join(old)), len("".join(new))):
        return [("changed", "".join(old), "".join(new))]  # two texts, not one that was edited
    if cut and sum(kind == "changed" for kind, _, _ in found) > 1 and found[-1][0] == "changed":
        found.pop()  # the windows end at different places of the texts: that is no difference
    return _joined(found)


def _joined(pieces: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Changes with nothing but blanks between them made one, which is easier to read."""
    found: list[tuple[str, str, str]] = []
    for kind, was, now in pieces:
        if kind == "changed" and len(found) > 1 and found[-2][0] == "changed":
            blank, first = found[-1], found[-2]
            if not blank[1].strip() and was and now and first[1] and first[2]:
                found[-2:] = [(kind, first[1] + blank[1] + was, first[2] + blank[2] + now)]
                continue
        found.append((kind, was, now))
    return found


def _middle(text: str) -> str:
    """Equal words between two changes, without their middle when they are many."""
    return text if len(text) <= 2 * _BEFORE else f"{text[:_BEFORE]}…{text[-_BEFORE:]}"
