"""Secrets: found in every spelling, kept out of what the loop and the tape see (E08)."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.errors import SecretError
from harness.records import (
    BashReply,
    BashRequest,
    History,
    ModelReply,
    ModelRequest,
    Reply,
    Request,
    Sample,
    Settings,
    ToolCall,
    ToolReply,
    ToolRequest,
    ValueRequest,
)
from harness.redact import MARK, SHORTEST, Redactor
from harness.store import Store
from harness.world import World
from tests.json_values import texts, values
from tests.scripted import Backend, call, config, dataset, says, take
from tests.test_files import everything

SECRET = 'sk-Canary+42/ä?&=~é~"01234\\56789'
REDACTOR = Redactor([SECRET])
LONG = "sk-proj-" + "aB3-_x9Z" * 20
"""As long as real keys are: in base64 it does not fit one line of `base64`."""

# characters that keys are made of, and some that encoders disagree about; none of the mark's own
secrets = st.text(st.sampled_from("ABXYZ0123456789_-+/=?&~!*'() %äé\"\\"), min_size=12, max_size=40)
plain_texts = st.text(st.characters(codec="utf-8"), max_size=30)


def percent(text: str) -> str:
    """Every byte URL-encoded, in lower case."""
    return "".join(f"%{byte:02x}" for byte in text.encode())


def spellings(secret: str) -> dict[str, str]:
    """How a secret can stand in a text; base64 with other bytes before and behind it."""
    raw = secret.encode()
    found = {
        "raw": secret,
        "quote": quote(secret),
        "quote all": quote(secret, safe=""),
        "quote_plus": quote_plus(secret),
        "encodeURIComponent": quote(secret, safe="!~*'()"),
        "percent": percent(secret),
        "percent upper": percent(secret).upper(),
        "json": json.dumps(secret),
        "json of javascript": json.dumps(secret, ensure_ascii=False).replace("/", "\\/"),
        "json escapes": "".join(f"\\u{ord(char):04X}" for char in secret),
    }
    for shift in range(3):
        for tail in range(3):
            stream = b"\x00" * shift + raw + b"\xfe" * tail
            found[f"base64 {shift} {tail}"] = base64.b64encode(stream).decode()
            found[f"urlsafe {shift} {tail}"] = base64.urlsafe_b64encode(stream).decode()
        longer = b"header: " + b"x" * shift + raw + b"; and what follows it" * 3
        found[f"stream {shift}"] = base64.b64encode(longer).decode()
        found[f"lines {shift}"] = base64.encodebytes(b"." * (40 + shift) + raw).decode()
        found[f"mime {shift}"] = found[f"lines {shift}"].replace("\n", "\r\n")
        for name in ("lines", "mime"):
            found[f"{name} in json {shift}"] = json.dumps(found[f"{name} {shift}"])
            found[f"{name} in json twice {shift}"] = json.dumps(found[f"{name} in json {shift}"])
    found["json twice"] = json.dumps(json.dumps(secret))
    return found


def still_there(text: str, secret: str) -> bool:
    """Whether anybody could read the secret: as it is, decoded from a URL, or from base64."""
    unescaped = re.sub(
        r"\\(?:u([0-9a-fA-F]{4})|(.))", lambda m: chr(int(m[1], 16)) if m[1] else m[2], text
    )
    if any(secret in form for form in (text, unescaped, unquote(text), unquote_plus(text))):
        return True
    joined = re.sub(r"[\r\n]|\\+[rn]", "", text).translate(str.maketrans("-_", "+/"))
    for run in re.findall(r"[A-Za-z0-9+/]{16,}", joined):
        for shift in range(4):
            part = run[shift:]
            if secret.encode() in base64.b64decode(part[: len(part) // 4 * 4]):
                return True
    return False


@pytest.mark.parametrize("spelling", spellings(SECRET))
@pytest.mark.parametrize("secret", [SECRET, LONG], ids=["odd", "long"])
def test_every_spelling_is_found(spelling: str, secret: str) -> None:
    text = f"before {spellings(secret)[spelling]} after"
    redactor = Redactor([secret])
    clean = redactor.text(text)
    assert MARK in clean
    assert not still_there(clean, secret)
    assert clean.startswith("before ")
    assert clean.endswith(" after")
    assert redactor.data(text.encode()) == clean.encode()


@given(secrets, st.integers(0, 999), plain_texts, plain_texts)
def test_any_secret_is_found_in_any_spelling(
    secret: str, choice: int, before: str, after: str
) -> None:
    redactor = Redactor([secret])
    known = list(spellings(secret).values())
    text = f"{before}\n{known[choice % len(known)]}\n{after}"
    clean = redactor.text(text)
    assert MARK in clean
    assert not still_there(clean, secret)
    assert redactor.data(text.encode()) == clean.encode()


@given(secrets, st.lists(plain_texts, max_size=4))
def test_redaction_is_idempotent(secret: str, parts: list[str]) -> None:
    redactor = Redactor([secret])
    once = redactor.text(secret.join(parts))
    assert redactor.text(once) == once
    assert len(parts) < 2 or MARK in once


@given(texts, st.binary(max_size=60))
def test_a_text_without_the_secret_is_unchanged(text: str, data: bytes) -> None:
    assume(not still_there(text, SECRET))
    assert REDACTOR.text(text) == text
    assert REDACTOR.data(data) == data


@given(values())
def test_a_value_without_the_secret_is_unchanged(value: Any) -> None:
    assert REDACTOR.json(value) == value
    assert Redactor([]).json(value) is value


@pytest.mark.parametrize("short", ["", "x", "k", "EMPTY", "sk-12345678"])
def test_a_short_secret_destroys_no_text(short: str) -> None:
    """Keys such as `x`: they cannot be told from ordinary text."""
    assert len(short) < SHORTEST
    redactor = Redactor([short])
    text = f"x k EMPTY sk-12345678 {short} {base64.b64encode(short.encode()).decode()}"
    assert redactor.text(text) == text
    assert redactor.data(text.encode()) == text.encode()
    redactor.check(BashRequest(text))


def test_the_shortest_that_counts() -> None:
    assert Redactor(["sk-123456789"]).text("sk-123456789") == MARK


def test_a_secret_that_holds_another_goes_as_a_whole() -> None:
    redactor = Redactor(["sk-abcdefghij", "sk-abcdefghij-and-more", "sk-abcdefghij"])
    assert redactor.text("sk-abcdefghij-and-more, sk-abcdefghij.") == f"{MARK}, {MARK}."


@pytest.mark.parametrize("secret", ["\ud800" * 12, "\udcff-from-the-environment", "\x00" * 12])
def test_a_secret_of_odd_characters_breaks_nothing(secret: str) -> None:
    redactor = Redactor([secret])
    assert redactor.text(f"a {secret} b") == f"a {MARK} b"
    assert redactor.data(b"\xff") == b"\xff"


# ------------------------------------------------------------------------------- replies and json


def test_keys_and_values_of_json() -> None:
    value = {f"a {SECRET}": [SECRET, 1, None, {"b": (quote(SECRET), True)}]}
    expected = {f"a {MARK}": [MARK, 1, None, {"b": [MARK, True]}]}
    assert REDACTOR.json(value) == expected


@pytest.mark.parametrize(
    ("reply", "clean"),
    [
        (
            BashReply(f"a {SECRET}".encode() + b"\xff", SECRET.encode(), 3, True, 7),
            BashReply(f"a {MARK}".encode() + b"\xff", MARK.encode(), 3, True, 7),
        ),
        (
            ModelReply(
                SECRET,
                (ToolCall(SECRET, SECRET, json.dumps({"command": f"echo {SECRET}"})),),
                reasoning=SECRET,
                refusal=SECRET,
                finish_reason=SECRET,
            ),
            ModelReply(
                MARK,
                (ToolCall(MARK, MARK, f'{{"command": "echo {MARK}"}}'),),
                reasoning=MARK,
                refusal=MARK,
                finish_reason=MARK,
            ),
        ),
        (ToolReply(f"{SECRET}!", True), ToolReply(f"{MARK}!", True)),
        ({"now": [SECRET]}, {"now": [MARK]}),
        (SECRET, MARK),
        (None, None),
    ],
)
def test_every_field_of_a_reply(reply: Reply, clean: Reply) -> None:
    assert REDACTOR.reply(reply) == clean
    assert REDACTOR.reply(clean) == clean
    assert Redactor(["x"]).reply(reply) is reply


# -------------------------------------------------------------------------------------- requests

MESSAGE = {"role": "user", "content": "hello"}
BAD = {"role": "user", "content": f"the key is {SECRET}"}


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        (ModelRequest([MESSAGE, BAD, MESSAGE]), "messages[1].content"),
        (
            ModelRequest([{"role": "assistant", "tool_calls": [ToolCall("1", "bash", SECRET)]}]),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (ModelRequest([{"role": "user", "content": [{"text": SECRET}]}]), "messages[0].content[0]"),
        (ModelRequest([], [{"function": {"name": SECRET}}]), "tools[0].function.name"),
        (ModelRequest([], (), {"extra_body": {"key": SECRET}}), "params.extra_body.key"),
        (ModelRequest([], (), {SECRET: 1}), "params"),
        (BashRequest(f"curl -H 'Authorization: Bearer {SECRET}' x"), "command"),
        (BashRequest("echo " + base64.b64encode(SECRET.encode()).decode()), "command"),
        (ToolRequest("s", "t", {"a": {"b": [1, SECRET]}}), "arguments.a.b[1]"),
        (ToolRequest("s", "t", {SECRET: 1}), "arguments"),
        (ToolRequest("s", SECRET), "name"),
        (ToolRequest(SECRET, "t"), "server"),
        (ValueRequest(f"now {SECRET}", lambda: 1), "name"),
    ],
)
def test_a_request_with_a_secret_is_refused_with_its_place(asked: Request, place: str) -> None:
    """And is refused again: nothing of it counts as looked through."""
    redactor = Redactor([SECRET])
    for _ in range(2):
        with pytest.raises(SecretError) as caught:
            redactor.check(asked)
        assert f" at {place}" in str(caught.value)
        assert SECRET not in str(caught.value)
        assert caught.value.kind == "secret"


@pytest.mark.parametrize(
    "asked",
    [
        ModelRequest([MESSAGE] * 3, [{"function": {"name": "bash"}}], {"seed": 1}),
        BashRequest("echo sk-Canary+42"),
        ToolRequest("s", "t", {"a": [1, None, "x"]}),
        ValueRequest("now", lambda: SECRET),
    ],
)
def test_a_request_without_one_passes(asked: Request) -> None:
    REDACTOR.check(asked)
    Redactor(["x"]).check(BashRequest(SECRET))


class Looking(Redactor):
    """Counts the messages that are looked through."""

    looked = 0

    def _refuse(self, value: Any, place: str) -> None:
        self.looked += isinstance(value, dict) and "role" in value
        super()._refuse(value, place)


def test_a_message_is_looked_through_once() -> None:
    """A step costs what its new messages cost, also here; a rewritten message is new."""
    redactor = Looking([SECRET])
    history = History([MESSAGE])
    for _ in range(50):
        history = history.append(MESSAGE)
        redactor.check(ModelRequest(history))
    assert redactor.looked == 51
    rewritten = History([*list(history)[:-1], BAD])
    with pytest.raises(SecretError, match=r"messages\[50\]"):
        redactor.check(ModelRequest(rewritten))


# ---------------------------------------------------------------------------------- a whole run


class Leaking(Backend):
    """Its metadata hold the secret too."""

    def world(self, sample: Sample, attachment: Path | None) -> Any:
        world = super().world(sample, attachment)
        world.take_meta = lambda: {"id": SECRET, SECRET: 1}  # type: ignore[method-assign]
        return world


def test_a_canary_is_found_nowhere_in_the_store(store: Store, tmp_path: Path) -> None:
    """From commands' outputs, model replies, metadata and answers."""
    asked: list[Request] = []

    def leaking(sample: Sample, request: Request) -> Reply:
        asked.append(request)
        if isinstance(request, BashRequest):
            both = SECRET.encode() + b"\n" + base64.encodebytes(b"ab" + SECRET.encode())
            return BashReply(stdout=both, stderr=percent(SECRET).encode())
        assert isinstance(request, ModelRequest)
        if len(request.messages) < 3:
            return says(f"I found {SECRET}", call("bash", command="env"))
        return says(None, call("submit", answer=f"it is {SECRET}"))

    data = dataset(tmp_path / "d", [("a", 1, "x")])
    recorded = take(store, config(data, secrets=(SECRET,)), Leaking(leaking))
    assert recorded.report.samples[0].answer == f"it is {MARK}"
    files = everything(tmp_path / "cassettes")
    assert sum(content.count(MARK.encode()) for content in files.values()) >= 6
    for name, content in files.items():
        assert not still_there(content.decode("utf-8", "replace"), SECRET), name
        assert SECRET not in os.fsdecode(name)
    assert len(asked) == 3
    for request in asked:
        if isinstance(request, ModelRequest):
            assert SECRET not in str(list(request.messages))


def reveals(sample: Sample, world: World, settings: Settings) -> str:
    """A user's loop that puts the secret together where no world sees it."""
    world.perform(BashRequest("true"))
    return SECRET


def test_a_loop_that_gives_a_secret_away_does_not_get_it_into_the_store(
    store: Store, tmp_path: Path
) -> None:
    """Neither in its answer nor in the report that the loop does not follow its cassette."""
    data = dataset(tmp_path / "d", [("a", 1, "x")])
    chosen = config(data, secrets=(SECRET,), agent="tests.test_redact:reveals")
    recorded = take(store, chosen, Backend(lambda sample, request: BashReply()))
    assert recorded.report.samples[0].answer == MARK
    for content in everything(tmp_path / "cassettes").values():
        assert not still_there(content.decode("utf-8", "replace"), SECRET)
    assert not any(still_there(finding, SECRET) for finding in recorded.findings)
