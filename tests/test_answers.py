"""A submitted JSON value becomes text before it is scored or exported, and loses nothing (A07)."""

import json
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.answers import MAX_DEPTH, NumberLiteral, answer_text, parse_arguments

any_text = st.text(st.characters(exclude_categories=()))
literals = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9][0-9]{0,9})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,4})?", fullmatch=True),
    st.sampled_from(["1.50", "1e400", "-0", "-0.0", "NaN", "Infinity", "-Infinity", "1E+05"]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), any_text, literals.map(NumberLiteral)),
    lambda inner: st.lists(inner) | st.dictionaries(any_text, inner),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("submitted", "text"),
    [
        ('"Paris"', "Paris"),
        ('" two  words \\n"', " two  words \n"),
        ('""', ""),
        ('"\\ud800 \\u0000"', "\ud800 \x00"),
        ('"42"', "42"),
        ("42", "42"),
        ("1.50", "1.50"),
        ("-0", "-0"),
        ("1e400", "1e400"),
        ("1E+05", "1E+05"),
        ("123456789012345678901234567890.10", "123456789012345678901234567890.10"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("true", "true"),
        ("false", "false"),
        ('["a", "b"]', "a, b"),
        ('["a, b", 1.0, true, null]', "a, b, 1.0, true, null"),
        ('[["a", 2.50], [], {"k": [1.0]}]', 'a, 2.50, , {"k":[1.0]}'),
        ("[]", ""),
        ("[null]", "null"),
        ("{}", "{}"),
        (
            '{"city" : "Z\\u00fcrich", "n": [1.50, null, {"x": true}]}',
            '{"city":"Z\u00fcrich","n":[1.50,null,{"x":true}]}',
        ),
        ('{"a": 1, "b": 2, "a": 3}', '{"a":3,"b":2}'),
        ('{"q\\"": "\\n"}', '{"q\\"":"\\n"}'),
    ],
)
def test_answer_text(submitted: str, text: str) -> None:
    arguments = parse_arguments(f'{{"answer": {submitted}}}')
    answer = answer_text(arguments["answer"])
    assert answer == text
    assert type(answer) is str


def test_null_is_no_answer() -> None:
    assert answer_text(parse_arguments('{"answer": null}')["answer"]) is None
    assert answer_text(parse_arguments("{}").get("answer")) is None


def test_python_values_of_arguments_that_came_as_an_object() -> None:
    """Some endpoints hand over a dict instead of a text."""
    value = {"n": [42, 1.5, float("inf"), True, None], "s": ("x", 1e22)}
    assert answer_text(value) == '{"n":[42,1.5,Infinity,true,null],"s":["x",1e+22]}'
    assert answer_text((1, "b", 2.0)) == "1, b, 2.0"


@pytest.mark.parametrize("value", [b"bytes", {1: "a"}, {"a": {1, 2}}, object()])
def test_what_is_no_json_value_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        answer_text(value)


@given(literals)
def test_a_number_keeps_its_literal_and_is_told_from_a_string(literal: str) -> None:
    number, text = parse_arguments(f' [{literal}, "{literal}"] ')
    assert type(number) is NumberLiteral
    assert type(text) is str
    assert answer_text(number) == literal == text
    assert float(number) == float(literal) or literal == "NaN"


@given(any_text)
def test_a_string_is_untouched(text: str) -> None:
    for submitted in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        assert answer_text(parse_arguments(submitted)) == text


@given(st.dictionaries(any_text, values))
def test_an_object_survives_its_own_text(value: dict[str, object]) -> None:
    text = answer_text(value)
    assert text is not None
    assert parse_arguments(text) == value
    assert answer_text(parse_arguments(text)) == text


@given(st.lists(any_text.filter(lambda text: ", " not in text), min_size=1))
def test_a_list_is_joined(items: list[str]) -> None:
    assert (answer_text(items) or "").split(", ") == ", ".join(items).split(", ")


@given(values)
def test_every_json_value_has_a_text_but_null(value: object) -> None:
    assert (answer_text(value) is None) is (value is None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        '{"answer": "cut',
        "{'a': 1}",
        '{"a": 1} x',
        "nan",
        "01",
        '"\n"',
        "[1,]",
        "\ufeff1",
    ],
)
def test_what_is_not_json_is_a_value_error_with_one_wording(text: str) -> None:
    """The wording may reach the model, so it must not depend on Python's version."""
    with pytest.raises(ValueError, match=r"^not valid JSON$"):
        parse_arguments(text)


@pytest.mark.parametrize("pair", ["[]", '{"a":}'])
def test_nesting_is_bounded_at_one_place(pair: str) -> None:
    opening, closing = pair[:-1], pair[-1]

    def nested(depth: int) -> str:
        return opening * depth + "1" + closing * depth

    assert answer_text(parse_arguments(nested(MAX_DEPTH))) is not None
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(ValueError, match="nested more than 100 deep"):
            parse_arguments(nested(depth))
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        parse_arguments(opening * 100_000)


def test_brackets_in_strings_are_no_nesting() -> None:
    text = '\\"[{' * 1000
    assert parse_arguments(json.dumps([text, text])) == [text, text]
    assert parse_arguments("[" + "[],{}," * 1000 + "1]")[-1] == "1"


def test_the_bound_does_not_depend_on_the_stack() -> None:
    """With most of the stack used up the same text is still read."""
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    results: list[object] = []

    def dive(left: int) -> None:
        if left:
            dive(left - 1)
        else:
            results.append(answer_text(parse_arguments(text)))

    thread = threading.Thread(target=dive, args=(sys.getrecursionlimit() // 2,))
    thread.start()
    thread.join()
    assert results == [""]


def test_a_million_digits() -> None:
    digits = "7" * 1_000_000
    assert answer_text(parse_arguments(f'{{"answer": {digits}}}')["answer"]) == digits
