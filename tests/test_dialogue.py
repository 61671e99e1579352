"""What the model is told: prompts, tool results, broken calls, and how long it may all get."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness import dialogue
from harness.dialogue import (
    BASH_TOOL,
    FILE_NOTE,
    REMINDER,
    SHORTENED,
    SUBMIT_TOOL,
    SYSTEM_PROMPT,
    Call,
    Dialogue,
    bash_text,
    clean,
    cut,
    error_text,
    estimate_tokens,
    message_tokens,
    sendable,
    user_prompt,
)
from harness.records import (
    BashReply,
    History,
    ModelReply,
    ModelRequest,
    Sample,
    Settings,
    ToolCall,
)
from tests.json_values import texts, values

SAMPLE = Sample(task_id="t", question="Why?", level=1)
MORE = [{"type": "function", "function": {"name": "fetch", "parameters": {"type": "object"}}}]

any_text = st.text(st.characters(exclude_categories=()), max_size=200)
# texts with line ends, escape sequences, and characters of one to four bytes
PIECES = (
    ["a", "word ", "\n", "\r", "\r\n", "\x1b", "\x1b[31m", "\x1b[0m", "\x1b]0;t\x07", "[0m"],
    ["]", "m", "\\", "é", "€", "🚀", "\ud800", "\ufffd", "\x00", "\x1b(B"],
)
outputs = st.lists(st.sampled_from([*PIECES[0], *PIECES[1]]), max_size=60).map("".join)


def talk(**more: Any) -> Dialogue:
    return Dialogue(SAMPLE, Settings(**more), MORE)


def hear(reply: ModelReply) -> tuple[list[Call], dict[str, Any]]:
    """The parsed calls of one reply, and the message that stands for it."""
    found = talk()
    calls = found.hear(reply)
    return calls, dict(found.request().messages[-1])


def one(arguments: str, name: str = "bash", finish_reason: str | None = "tool_calls") -> Call:
    calls, _ = hear(
        ModelReply(tool_calls=(ToolCall("c", name, arguments),), finish_reason=finish_reason)
    )
    return calls[0]


# --------------------------------------------------------------------------------------- prompts


def test_the_first_request() -> None:
    request = talk(params={"seed": 1}).request()
    assert list(request.messages) == [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": "Why?"},
    ]
    assert request.tools == [BASH_TOOL, SUBMIT_TOOL, *MORE]
    assert request.params == {"seed": 1}


@pytest.mark.parametrize(
    "rule", ["digits only", "no unit", "unless the question asks", "few words", "no articles",
             "no abbreviations", "separated by commas"],
)  # fmt: skip
def test_the_prompt_tells_the_benchmark_s_form_of_answers(rule: str) -> None:
    assert rule in " ".join(SYSTEM_PROMPT.split())


@pytest.mark.parametrize(
    "promise",
    [
        "starts in a new shell in /workspace",
        "files stay, and so do background processes",
        "the working directory and variables do not",
        "Standard input is empty",
        "takes too long is stopped",
        "long output is cut in the middle",
        "its exit code",
    ],
)
def test_what_the_description_of_bash_promises(promise: str) -> None:
    """C15: the sandbox's tests hold what is said here; changing one needs changing the other."""
    assert promise in BASH_TOOL["function"]["description"]


def test_the_description_of_submit_says_that_the_first_one_counts() -> None:
    assert "Only the first one counts" in SUBMIT_TOOL["function"]["description"]


@pytest.mark.parametrize("tool", [BASH_TOOL, SUBMIT_TOOL])
def test_tools_are_valid_schemas(tool: dict[str, Any]) -> None:
    function = tool["function"]
    assert re.fullmatch(r"[a-z_]{1,64}", function["name"])
    assert set(function["parameters"]["required"]) == set(function["parameters"]["properties"])


@pytest.mark.parametrize(
    ("template", "question", "file", "expected"),
    [
        (None, "Why?", "", "Why?"),
        (None, "Why?", "a.txt", f"Why?\n\n{FILE_NOTE.replace('{name}', 'a.txt')}"),
        (None, "{file} or {question}?", "", "{file} or {question}?"),
        (
            None,
            "Why?",
            "{question}.txt",
            f"Why?\n\n{FILE_NOTE.replace('{name}', '{question}.txt')}",
        ),
        ("Q: {question}", "a {b} {0} {{c}} \\1 \\g<0>", "", "Q: a {b} {0} {{c}} \\1 \\g<0>"),
        ("{question} / {question} [{file}]", "Why?", "", "Why? / Why? []"),
        ("{other} {question", "Why?", "a", "{other} {question"),
        ("{file}{question}", "{file}", "{file}", FILE_NOTE.replace("{name}", "{file}") + "{file}"),
    ],
)
def test_the_user_s_template(template: str | None, question: str, file: str, expected: str) -> None:
    """`{question}` and `{file}` are filled in once, whatever the question holds."""
    sample = Sample(task_id="t", question=question, level=1, file_name=file)
    assert user_prompt(sample, template) == expected


@given(any_text, texts)
def test_a_question_stands_in_the_prompt_as_it_is(question: str, name: str) -> None:
    sample = Sample(task_id="t", question=question, level=1, file_name=name)
    found = user_prompt(sample, "<{question}|{file}>")
    note = FILE_NOTE.replace("{name}", name) if name else ""
    assert found == f"<{question}|{note}>"


def test_the_file_is_named_where_the_sandbox_has_it() -> None:
    sample = Sample(task_id="t", question="Why?", level=1, file_name="my data.xlsx")
    assert "/shared_files/my data.xlsx" in user_prompt(sample, None)
    assert "read-only" in user_prompt(sample, None)


# --------------------------------------------------------------------------------- broken calls


@pytest.mark.parametrize("arguments", ["", " ", "\n", "null", " null "])
def test_a_call_without_arguments(arguments: str) -> None:
    """D06: it is run as `{}`, and the history carries `{}`."""
    assert one(arguments, "fetch") == Call("c", "fetch", {})
    assert one(arguments).error == "the argument 'command' is missing"
    _, message = hear(ModelReply(tool_calls=(ToolCall("c", "fetch", arguments),)))
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize("arguments", ['"ls"', '["ls"]', "5", "true", "[]", "1.5"])
@pytest.mark.parametrize("name", ["bash", "submit", "fetch"])
def test_arguments_that_are_no_object(name: str, arguments: str) -> None:
    """D08: an error to the model, no crash."""
    assert one(arguments, name) == Call("c", name, {}, "the arguments must be a JSON object")


@pytest.mark.parametrize(
    ("finish_reason", "told"),
    [
        ("length", "the call was cut off at the token limit; make it shorter"),
        ("tool_calls", "the arguments are not valid JSON"),
        (None, "the arguments are not valid JSON"),
    ],
)
def test_a_call_that_was_cut(finish_reason: str | None, told: str) -> None:
    """D07: not run; the model is told why; what stands in the history is valid JSON."""
    broken = '{"command": "python3 -c \\"print('
    assert one(broken, finish_reason=finish_reason) == Call("c", "bash", {}, told)
    _, message = hear(ModelReply(tool_calls=(ToolCall("c", "bash", broken),)))
    shown = json.loads(message["tool_calls"][0]["function"]["arguments"])
    assert shown == {"unparsed": broken}


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("bash", "{}", "the argument 'command' is missing"),
        ("bash", '{"cmd": "ls"}', "the argument 'command' is missing"),
        ("bash", '{"command": 5}', "the argument 'command' must be a string"),
        ("bash", '{"command": null}', "the argument 'command' must be a string"),
        ("bash", '{"command": ["ls"]}', "the argument 'command' must be a string"),
        ("submit", "{}", "the argument 'answer' is missing"),
        ("python", "{}", "there is no tool 'python'; tools: bash, submit, fetch"),
        ("", "{}", "there is no tool ''; tools: bash, submit, fetch"),
        ("Bash", "{}", "there is no tool 'Bash'; tools: bash, submit, fetch"),
        ("fetch", '{"x": NaN}', "the arguments are no valid JSON (NaN is no JSON number)"),
        ("fetch", '{"x": -Infinity}', "the arguments are no valid JSON"),
        ("fetch", '{"x": 1e999}', "the arguments are no valid JSON (1e999 is no JSON number)"),
        ("fetch", '{"x": ' + "9" * 5000 + "}", "a 5000-digit number is no JSON number"),
        ("bash", '{"a":' * 101 + "1" + "}" * 101, "the arguments are nested more than 100 deep"),
        ("bash", "[" * 100_000, "the arguments are nested more than 100 deep"),
        ("bash", '\ufeff{"command": "ls"}', "the arguments are not valid JSON"),
    ],
)
def test_other_calls_that_cannot_be_run(name: str, arguments: str, told: str) -> None:
    found = one(arguments, name)
    assert found.error is not None
    assert told in found.error
    assert found.arguments == {}
    assert error_text(told) == f"[not run: {told}]"


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("bash", '{"command": "ls", "why": 1}', {"command": "ls", "why": "1"}),
        ("bash", ' {"command": "a\\nb\\u00e9\\ud83d\\ude00"} ', {"command": "a\nbé😀"}),
        ("submit", '{"answer": 1.50}', {"answer": "1.50"}),
        (
            "fetch",
            '{"n": 1, "x": 2.50, "s": ["1"], "o": {}}',
            {"n": 1, "x": 2.5, "s": ["1"], "o": {}},
        ),
        (
            "fetch",
            '{"big": 123456789012345678901234567890}',
            {"big": 123456789012345678901234567890},
        ),
    ],
)
def test_calls_that_are_run(name: str, arguments: str, expected: dict[str, Any]) -> None:
    """A tool server is given numbers; a command and an answer keep their spelling."""
    found = one(arguments, name)
    assert found == Call("c", name, expected)
    if name == "fetch":
        assert [type(item) for item in found.arguments.values()] == [
            type(item) for item in expected.values()
        ]


ODD = (
    ["", "null", "NaN", '{"x": NaN}', '{"x": 1e999}', '{"x": 1', '{"a":1}{"b":2}', "{'a': 1}"],
    ['{"a": "\t"}', '{"a": 1,}', '{"\ud800": 1}', "\ufeff{}", '{"x": ' + "1" * 5000 + "}"],
)
jsonish = (
    any_text
    | values().map(json.dumps)
    | st.dictionaries(texts, values(), max_size=3).map(json.dumps)
    | st.sampled_from([*ODD[0], *ODD[1]])
)


def strictly(text: str) -> Any:
    """JSON as other programs read it."""

    def refuse(name: str) -> Any:
        raise ValueError(name)

    return json.loads(text, parse_constant=refuse)


@given(jsonish, st.sampled_from(["bash", "submit", "fetch", "other"]), st.sampled_from(
    ["stop", "length", "tool_calls", None]
))  # fmt: skip
@example("9" * 5000, "fetch", None)
def test_a_history_holds_valid_arguments_only(
    arguments: str, name: str, finish_reason: str | None
) -> None:
    """D07: whatever a model sends, the next request is accepted, and no call raises."""
    calls, message = hear(
        ModelReply(tool_calls=(ToolCall("c", name, arguments),), finish_reason=finish_reason)
    )
    shown = message["tool_calls"][0]["function"]["arguments"]
    assert isinstance(strictly(shown), dict)
    assert sendable(shown) == shown
    assert calls[0].error is None or calls[0].arguments == {}
    if calls[0].error is None and arguments.strip() not in ("", "null"):
        assert shown == arguments or name == "submit"


@given(st.dictionaries(texts, values(), max_size=4))
def test_good_arguments_stand_as_they_came(value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=1)
    assert sendable(text) == text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("bash", "bash"),
        ("web_search-2", "web_search-2"),
        ("functions.bash", "functions_bash"),
        ("bash\n<|end|>", "bash___end__"),
        ("recherché", "recherch_"),
        ("", "_"),
        ("\ud800", "_"),
        ("x" * 90, "x" * 64),
    ],
)
def test_a_history_holds_valid_names_only(name: str, shown: str) -> None:
    """D07: a made-up name is told to the model as it was, and poisons no later request."""
    calls, message = hear(ModelReply(tool_calls=(ToolCall("c", name, "{}"),)))
    assert message["tool_calls"][0]["function"]["name"] == shown
    assert calls[0].name == name
    assert calls[0].error is not None
    if name != "bash":
        assert calls[0].error.startswith(f"there is no tool {name!r}")


def test_ids_are_echoed_and_may_repeat() -> None:
    """D09, D10: a provider's own format, one id twice, none at all."""
    ids = ["functions.bash:0", "x", "x", ""]
    found = talk()
    calls = found.hear(
        ModelReply(tool_calls=tuple(ToolCall(id, "bash", '{"command": "ls"}') for id in ids))
    )
    for number, call in enumerate(calls):
        found.answer(call, str(number))
    messages = list(found.request().messages)
    assert [call["id"] for call in messages[2]["tool_calls"]] == ids
    assert [message["tool_call_id"] for message in messages[3:]] == ids
    assert [message["content"] for message in messages[3:]] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("send", [True, False])
def test_reasoning_is_sent_back_when_told_to(send: bool) -> None:
    """D11: on every assistant message or on none."""
    found = talk(send_reasoning=send)
    found.hear(ModelReply("a", reasoning="because", tool_calls=(ToolCall("1", "bash", "{}"),)))
    found.remind()
    found.hear(ModelReply("b", reasoning=""))
    found.hear(ModelReply(None))
    spoken = [m for m in found.request().messages if m["role"] == "assistant"]
    assert [m.get("reasoning_content") for m in spoken] == (
        ["because", "", None] if send else [None, None, None]
    )
    assert [m["content"] for m in spoken] == ["a", "b", ""]


def test_a_request_is_not_changed_by_what_is_said_later() -> None:
    found = talk()
    first = found.request()
    before = first.digest("m")
    found.hear(ModelReply("x"))
    found.remind()
    assert first.digest("m") == before
    assert len(first.messages) == 2
    assert found.request().messages[-1] == {"role": "user", "content": REMINDER}
    assert [node.chain for node in found.request().messages.nodes()[:2]] == [
        node.chain for node in first.messages.nodes()
    ]


# --------------------------------------------------------------------------------- tool results

MARKER = re.compile(r"(.*)\n\[\.\.\. (\d+) bytes left out here \.\.\.\]\n(.*)", re.DOTALL)


def size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@given(outputs, st.integers(1, 80), st.integers(0, 10**12))
def test_a_cut_keeps_head_and_tail_and_counts_the_rest(text: str, limit: int, omitted: int) -> None:
    """C10: whole characters, in equal halves; every byte is there or counted."""
    found = cut(text, limit, omitted)
    if len(text) <= limit and not omitted:
        assert found == text
        return
    match = MARKER.fullmatch(found)
    assert match is not None
    # the text itself may look like a marker: try each place
    shown = min(limit, len(text))
    head, tail = found[: shown - shown // 2], found[len(found) - shown // 2 :]
    assert text.startswith(head)
    assert text.endswith(tail)
    middle = found[len(head) : len(found) - len(tail)]
    counted = re.fullmatch(r"\n\[\.\.\. (\d+) bytes left out here \.\.\.\]\n", middle)
    assert counted is not None
    assert int(counted[1]) == size(text) - size(head) - size(tail) + omitted


def test_a_flood_is_told_with_its_size() -> None:
    """C10, with the numbers that a sandbox gives."""
    text = "".join(f"{number}\n" for number in range(1, 200_001))
    found = bash_text(BashReply(text.encode()), 5, 16_000)
    assert found.startswith("1\n2\n3\n")
    assert found.endswith("199999\n200000\n")
    assert f"[... {len(text) - 16_000} bytes left out here ...]" in found
    kept = b"y\n" * 8000
    found = bash_text(BashReply(kept, omitted=2**31 - len(kept)), 5, 16_000)
    assert f"[... {2**31 - 16_000} bytes left out here ...]" in found


@given(outputs)
def test_cleaning_is_done_once(text: str) -> None:
    """C11: nothing is left that could be cleaned away; a plain text stays as it is."""
    found = clean(text)
    assert clean(found) == found
    assert "\x1b" not in found
    assert "\r" not in found
    if "\x1b" not in text and "\r" not in text:
        assert found == text
    assert found.count("\n") <= text.count("\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mx\x1b[0m", "x"),
        ("\x1b[1;38;5;196mred\x1b[m \x1b[2K\x1b[1Gx", "red x"),
        ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "xlink"),
        ("\x1b(Bx\x1b=\x1b>y\x1bcz\x1b7\x1b8", "xyz"),
        ("\x1bPq#0\x1b\\x", "x"),
        ("".join(f"\r{number}%" for number in range(1000)), "999%"),
        ("10%\r20%\r\ndone\r\n", "20%\ndone\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("\x1b\x1b[31m[0mx", "[0mx"),
        ("x\x1b", "x"),
        ("\x1b[31", "31"),
        ("tab\there, [0m and 100%", "tab\there, [0m and 100%"),
    ],
)
def test_terminal_escapes_and_progress_bars_go(text: str, expected: str) -> None:
    assert clean(text) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (BashReply(b"hi\n"), "hi\n"),
        (BashReply(b"hi"), "hi"),
        (BashReply(), "[no output]"),
        (BashReply(b"", b"", 1), "[exit code 1]"),
        (BashReply(b"hi", b"", 137), "hi\n[exit code 137]"),
        (BashReply(b"hi\n", b"oops", 2), "hi\n[stderr]\noops\n[exit code 2]"),
        (BashReply(b"hi", b"oops\n"), "hi\n[stderr]\noops\n"),
        (BashReply(b"", b"oops"), "[stderr]\noops"),
        (BashReply(b"part", b"", None, True), "part\n[stopped: still running after 2 s]"),
        (BashReply(b"", b"", None, True), "[stopped: still running after 2 s]"),
        (BashReply(b"", b"", 124), "[exit code 124]"),
        (BashReply("\U0001f680".encode(), b"err\n"), "\U0001f680\n[stderr]\nerr\n"),
        (BashReply(b"\xff\xfe ok"), "\ufffd\ufffd ok"),
        (BashReply(b"a\x00b"), "a\x00b"),
        (BashReply(b"\x1b[31mred\x1b[0m", b"\r1%\r2%"), "red\n[stderr]\n2%"),
    ],
)
def test_how_a_result_is_worded(reply: BashReply, expected: str) -> None:
    assert bash_text(reply, 2.0, 1000) == expected


@given(
    st.builds(
        BashReply,
        outputs.map(lambda text: text.encode("utf-8", "surrogatepass")),
        outputs.map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.none() | st.integers(0, 255),
        st.booleans(),
        st.sampled_from([0, 1, 10**9]),
    ),
    st.integers(1, 60),
)
def test_a_result_is_never_longer_than_its_limit(reply: BashReply, limit: int) -> None:
    """Cleaned first, cut after: what was cleaned away does not count."""
    found = bash_text(reply, 180.0, limit)
    notes = len("\n[... 1000000000000 bytes left out here ...]\n") + len(
        "\n[stopped: still running after 180 s]"
    )
    assert 0 < len(found) <= limit + notes
    stdout = clean(reply.stdout.decode("utf-8", "replace"))
    assert found.startswith(stdout[: limit - limit // 2]) or reply.omitted
    if not reply.omitted and not reply.stderr and len(stdout) <= limit:
        assert "left out here" not in found or "left out here" in stdout
        assert found.startswith(stdout)
    found.encode("utf-8")  # nothing that an endpoint could reject


# ----------------------------------------------------------------------------- long histories


def tokens(request: ModelRequest) -> int:
    """The stated estimate, counted anew."""
    tools = estimate_tokens(json.dumps(request.tools, separators=(",", ":"), ensure_ascii=False))
    return tools + sum(map(message_tokens, request.messages))


def longest(request: ModelRequest) -> int:
    """Characters of the longest result but the newest."""
    results = [m["content"] for m in request.messages if m["role"] == "tool"]
    return max(map(len, results[:-1]), default=0)


@given(st.text(max_size=50))
def test_the_stated_estimate(text: str) -> None:
    assert estimate_tokens(text) == (size(text) + 2) // 3
    message = {"role": "tool", "tool_call_id": "x", "content": text}
    assert message_tokens(message) == 4 + estimate_tokens(text)
    call = {"function": {"name": "bash", "arguments": text}}
    spoken = {"role": "assistant", "content": "", "reasoning_content": text, "tool_calls": [call]}
    assert message_tokens(spoken) == 4 + estimate_tokens(text) + 8 + estimate_tokens("bash" + text)


def conversation(limit: int | None, lengths: list[int], said: int = 20) -> list[ModelRequest]:
    """The requests of a dialogue whose turns say so much and whose results are so long."""
    found = talk(context_limit=limit)
    requests = [found.request()]
    for number, length in enumerate(lengths):
        (call,) = found.hear(
            ModelReply("s" * said, (ToolCall(f"c{number}", "bash", '{"command": "x"}'),))
        )
        found.answer(call, f"{number}:" + "o" * length)
        requests.append(found.request())
    return requests


@settings(max_examples=40)
@given(
    st.integers(1500, 8000),
    st.lists(st.sampled_from([0, 100, 900, 2000, 3000]), min_size=10, max_size=30),
    st.sampled_from([20, 20, 2000]),
)
def test_old_results_are_shortened_in_batches(limit: int, lengths: list[int], said: int) -> None:
    """At 90 % of the limit, down to 60 %, the oldest first, the newest never."""
    requests = conversation(limit, lengths, said)
    again = conversation(limit, lengths, said)
    assert [r.digest("m") for r in requests] == [r.digest("m") for r in again]
    rewritten = 0
    for number, (before, after) in enumerate(pairwise(requests)):
        old, new = list(before.messages), list(after.messages)
        assert [m["role"] for m in new[: len(old)]] == [m["role"] for m in old]
        assert new[-1]["content"] == f"{number}:" + "o" * lengths[number]
        changed = [i for i, message in enumerate(old) if new[i] != message]
        rewritten += len(changed)
        for i in changed:
            assert old[i]["role"] == "tool"
            assert new[i] == {**old[i], "content": cut(old[i]["content"], SHORTENED)}
        if changed:
            # oldest first: what is older than a shortened one could not be shortened any more
            older = [m["content"] for m in new[: max(changed)] if m["role"] == "tool"]
            assert max(map(len, older), default=0) <= 2 * SHORTENED
            # and no more of them than needed
            last = max(changed)
            saved = message_tokens(old[last]) - message_tokens(new[last])
            assert tokens(after) + saved > 0.6 * limit - 1
            grown = tokens(before) + sum(map(message_tokens, new[len(old) :]))
            assert grown > 0.9 * limit
            assert tokens(after) <= 0.6 * limit + 1 or longest(after) <= 2 * SHORTENED
        elif tokens(after) > 0.9 * limit:
            # nothing left to shorten, or it was tried in vain a short while ago
            assert longest(after) <= 3000 + 5
    assert rewritten <= len(lengths)


def test_a_history_stays_below_its_limit_when_it_can() -> None:
    requests = conversation(10_000, [3000] * 20)
    sizes = [tokens(request) for request in requests]
    assert max(sizes) <= 0.9 * 10_000
    batches = [
        number
        for number, (before, after) in enumerate(pairwise(requests))
        if list(after.messages)[: len(before.messages)] != list(before.messages)
    ]
    assert 2 < len(batches) < 10
    saved = (3000 - SHORTENED) // 3
    for number in batches:
        assert 0.6 * 10_000 - saved < sizes[number + 1] <= 0.6 * 10_000


def test_without_a_limit_nothing_is_shortened() -> None:
    last = conversation(None, [5000] * 10)[-1]
    assert [len(m["content"]) for m in last.messages if m["role"] == "tool"] == [5002] * 10


def test_what_cannot_be_shortened_is_not_tried_at_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A limit below what the prompts take, and talk that no shortening touches."""
    tried: list[int] = []
    real = dialogue.shorten

    def counting(history: Any, *more: int) -> Any:
        tried.append(len(history))
        return real(history, *more)

    monkeypatch.setattr(dialogue, "shorten", counting)
    requests = conversation(2000, [10] * 200, said=300)
    assert len(requests[-1].messages) == 402
    assert len(tried) < 130


def test_shortening_goes_on_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was shortened once is not read again, however long the history grows."""
    read: list[int] = []
    real = History.nodes

    def counting(history: History, start: int = 0) -> list[History]:
        found = real(history, start)
        read.append(len(found))
        return found

    monkeypatch.setattr(History, "nodes", counting)
    requests = conversation(20_000, [3000] * 200)
    assert len(requests[-1].messages) > 400
    assert len(read) > 10
    assert sum(read) < 3 * len(requests[-1].messages)


def test_shortening_keeps_what_it_does_not_touch() -> None:
    """The messages before the first shortened one are the same objects: their digests are kept."""
    requests = conversation(3000, [100, 100, 3000, 3000, 3000])
    last, before = requests[-1].messages, requests[2].messages
    node = last
    while len(node) > len(before):
        assert node.parent is not None
        node = node.parent
    assert node is before
