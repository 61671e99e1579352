"""The first difference of two JSON values, and how differences are shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness import canonical
from harness.difference import ABSENT, first_difference, path_text, word_diff


@pytest.mark.parametrize(
    ("old", "new", "marked"),
    [
        ("be careful now", "be quick now", "be [-careful-]{+quick+} now"),
        ("be careful now", "be careless now", "be [-careful-]{+careless+} now"),
        ("be now", "be careful now", "be {+careful +}now"),
        ("one two three", "one three", "one [-two -]three"),
        ("see a big red dog run", "see a wet old dog run", "see a [-big red-]{+wet old+} dog run"),
        ("one big and red dog", "one wet and old dog", "one [-big-]{+wet+} and [-red-]{+old+} dog"),
        (
            "see big red dogs run far away today",
            "see wet old dogs run far away tonight",
            "see [-big red-]{+wet old+} dogs run far away [-today-]{+tonight+}",
        ),
        # two texts rather than one that was edited
        (
            "cat the long file",
            "python of the small thing",
            "[-cat the long file-]{+python of the small thing+}",
        ),
        ("ls -l /tmp", "ls -la /tmp", "ls -[-l-]{+la+} /tmp"),
        ("", "new", "{+new+}"),
        ("abc def", "0123456789", "[-abc def-]{+0123456789+}"),
    ],
)
def test_word_diff(old: str, new: str, marked: str) -> None:
    assert word_diff(old, new) == marked


def test_word_diff_of_long_texts_shows_the_place() -> None:
    old = "word " * 50_000 + "careful " + "tail " * 50_000
    new = "word " * 50_000 + "careless " + "tail " * 50_000
    assert word_diff(old, new) == (
        "…" + ("word " * 8) + "[-careful-]{+careless+} " + ("tail " * 8)[:-1] + "…"
    )
    shown = word_diff("start " + "a b " * 10_000 + "c", "start x " + "a b " * 10_000 + "d")
    assert shown.startswith("start {+x +}a b")
    assert shown.endswith("…")
    assert len(shown) < 500
    middle = " ".join(f"word{number}" for number in range(200))
    shown = word_diff(f"start {middle} stop", f"start here and now {middle} end")
    assert shown.startswith("start {+here and now +}word0 word1")
    assert "[-" not in shown


def test_paths() -> None:
    assert path_text(("messages", 0, "content")) == "messages[0].content"
    assert path_text(("params", "a key", "x-y")) == 'params["a key"].x-y'
    assert len(path_text(("tools", *range(10_000)))) < 200
    assert len(path_text(("params", "k" * 10_000))) < 100


_TEXT = st.text(st.sampled_from(list("ab \n\x1b\u202e\ud83d\ude00\U0001f600é")), max_size=4)
_SCALAR = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 1.5]) | _TEXT
_JSON = st.recursive(
    _SCALAR,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "b", "é", "\U0001f600", "\uffff"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two values, most of them alike in much."""
    old = draw(_JSON)

    def edited(value: Any) -> Any:
        if draw(st.integers(0, 3)) == 0:
            return draw(_JSON)
        if isinstance(value, list):
            return [edited(item) for item in value][: draw(st.integers(0, 4))]
        if isinstance(value, dict):
            return {key: edited(item) for key, item in value.items()}
        return value

    return old, edited(old)


def _at(value: Any, key: str | int) -> Any:
    try:
        return value[key]
    except (KeyError, IndexError):
        return ABSENT


def _before(key: str | int, old: Any, new: Any) -> list[Any]:
    """What comes before a key or an index, in canonical order."""
    if isinstance(key, int):
        return list(range(key))
    keys = sorted({*old, *new}, key=lambda k: k.encode("utf-16-be", "surrogatepass"))
    return keys[: keys.index(key)]


def _same(old: Any, new: Any) -> bool:
    if old is ABSENT or new is ABSENT:
        return old is new
    return canonical.dumps(old) == canonical.dumps(new)


@given(_pairs())
@example((True, 1))
@example((1, 1.0))
@example(({"a": None}, {}))
@example((["\ud83d\ude00"], ["\U0001f600"]))
@example(({"\ud83d\ude00": 1}, {"\U0001f600": 1}))
def test_the_first_difference_is_the_first_difference(pair: tuple[Any, Any]) -> None:
    old, new = pair
    found = first_difference(old, new)
    assert (found is None) == _same(old, new)
    if found is None:
        return
    for key in found.path:
        assert all(_same(_at(old, k), _at(new, k)) for k in _before(key, old, new))
        old, new = _at(old, key), _at(new, key)
    assert (old, new) == (found.recorded, found.asked)
    assert not _same(old, new)
    both_lists = isinstance(old, list) and isinstance(new, list)
    assert not both_lists
    assert not (isinstance(old, dict) and isinstance(new, dict))


def test_first_difference_needs_no_recursion() -> None:
    old: Any = "a"
    new: Any = "b"
    for _ in range(50_000):
        old, new = [old], {"k": new} if new == "b" else [new]
    found = first_difference(old, new)
    assert found is not None
    assert len(found.path) == 49_999
    while isinstance(old, list):  # taken apart by hand: Python's own way down is recursive
        old = old.pop()
    while isinstance(new, list):
        new = new.pop()
