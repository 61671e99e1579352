"""The merger alone: any whole reply, cut in any way that endpoints cut, merges back to itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.live import events
from harness.live.merge import Merged, StreamMerger, from_completion
from harness.records import ModelReply, ToolCall, Usage, reply_digest
from tests.quirks import QUIRKS, USAGE, Answer, call, chunk, completion

JSON = Any
Delta = dict[str, JSON]

# Every character that JSON can carry, lone surrogates and NUL included.
anything = st.text(st.characters(codec=None), max_size=12)
words = st.text(min_size=1, max_size=8)
json_objects = st.dictionaries(words, st.text(max_size=6) | st.integers(), max_size=3)
argument_texts = st.one_of(
    json_objects.map(json.dumps),
    json_objects.map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))),
)
# Argument texts that are no object: the model's mistakes, kept as they are.
broken_texts = st.one_of(st.sampled_from(["", " ", '"ls"', '["ls"]', "5", '{"a": "b']), anything)


def merged(chunks: list[Delta]) -> Merged:
    merger = StreamMerger()
    for each in chunks:
        merger.feed(each)
    return merger.result()


# ------------------------------------------------------------------------------ replies and cuts


@st.composite
def whole_replies(draw: st.DrawFn, *, calls: st.SearchStrategy[list[JSON]]) -> Delta:
    """The body of a chat completion."""
    message: Delta = {"role": "assistant"}
    parts = st.one_of(
        st.fixed_dictionaries({"type": st.just("text"), "text": anything}),
        st.fixed_dictionaries({"type": st.just("thinking"), "thinking": anything}),
        st.fixed_dictionaries({"type": st.just("hologram"), "data": st.integers()}),
    )
    message["content"] = draw(st.none() | anything | st.lists(parts, max_size=3))
    for key in ("reasoning_content", "reasoning", "refusal"):
        if draw(st.integers(0, 3)) == 0:
            message[key] = draw(st.none() | anything)
    if found := draw(calls):
        message["tool_calls"] = found
    finish = draw(st.sampled_from(["stop", "length", "tool_calls", "content_filter", "odd", None]))
    return completion(message, finish, usage=draw(st.sampled_from([USAGE, None, {}])))


def fragments(draw: st.DrawFn, text: str) -> list[str]:
    """A text in up to four pieces, empty ones among them."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def call_entries(
    draw: st.DrawFn, calls: list[JSON], index: str, repeat: st.SearchStrategy[str]
) -> list[Delta]:
    """The entries of streamed tool calls, call after call."""
    entries: list[Delta] = []
    for number, whole in enumerate(calls):
        text = whole["function"]["arguments"]
        for n, piece in enumerate(fragments(draw, text or "")):
            entry = call(whole["id"], whole["function"]["name"], piece)
            if n:
                entry = later_entry(entry, draw(repeat))
            elif not piece and draw(st.booleans()):
                entry["function"]["arguments"] = None
            if index != "missing":
                entry["index"] = {"given": number, "zero": 0, "null": None}[index]
            entries.append(entry)
    return entries


def later_entry(entry: Delta, style: str) -> Delta:
    """A continuation in one of the styles that are in use."""
    arguments = entry["function"]["arguments"]
    return {
        "absent": {"function": {"arguments": arguments}},
        "empty": call("", "", arguments),
        "null": call(None, None, arguments, type=None),
        "id repeated": call(entry["id"], "", arguments),
        "all repeated": entry,
    }[style]


def cut(draw: st.DrawFn, body: Delta, entries: list[Delta]) -> list[Delta]:
    """The body as the chunks of a stream; `entries` are its tool calls in pieces."""
    choice = body["choices"][0]
    message, finish, usage = choice["message"], choice["finish_reason"], body["usage"]
    content: list[Delta] = []
    if isinstance(message["content"], str):
        content = [{"content": piece} for piece in fragments(draw, message["content"])]
    for part in message["content"] if isinstance(message["content"], list) else []:
        key = {"text": "text", "thinking": "thinking"}.get(part["type"])
        pieces = [{**part, key: p} for p in fragments(draw, part[key])] if key else [part]
        content += [{"content": [piece]} for piece in pieces]
    refusal = [{"refusal": piece} for piece in fragments(draw, message.get("refusal") or "")]
    both = {key: message.get(key) or "" for key in ("reasoning_content", "reasoning")}
    if all(both.values()):  # both names are in use with the same text under both only
        reasoning: list[Delta] = [both]
    else:
        key = "reasoning_content" if both["reasoning_content"] else "reasoning"
        reasoning = [{key: piece} for piece in fragments(draw, "".join(both.values()))]
    calls: list[Delta] = []
    while entries:
        count = draw(st.integers(1, 3))
        calls.append({"tool_calls": entries[:count]})
        entries = entries[count:]
    deltas = riffle(draw, [content, refusal, reasoning, calls])
    opening = draw(st.sampled_from([None, {"role": "assistant"}, {"role": None, "content": ""}]))
    deltas = [*([opening] if opening else []), *deltas] or [{}]
    chunks = [chunk(delta) for delta in deltas]
    if draw(st.booleans()):
        chunks.append(chunk({}))
    chunks[-1]["choices"][0]["finish_reason"] = finish
    if usage:
        how = draw(st.sampled_from(["own chunk", "last", "every", "in choice"]))
        if how == "own chunk":
            chunks.append({**chunks[0], "choices": [], "usage": usage})
        elif how == "in choice":
            chunks[-1]["choices"][0]["usage"] = usage
        else:
            chunks[-1]["usage"] = usage
            for n, each in enumerate(chunks[:-1] if how == "every" else []):
                each["usage"] = {"prompt_tokens": 11, "completion_tokens": n}
    if draw(st.booleans()):
        chunks.insert(0, {"id": "", "model": "", "choices": [], "prompt_filter_results": [1]})
    return chunks


def same(body: Delta, chunks: list[Delta]) -> None:
    whole, streamed = from_completion(body), merged(chunks)
    assert streamed.reply == whole.reply
    for key in ("response_id", "model", "created", "usage"):
        assert streamed.details.get(key) == whole.details.get(key)
    # texts of parts may come in more pieces; what is unknown is kept either way
    assert streamed.details.get("unknown_parts") == whole.details.get("unknown_parts")


def riffle(draw: st.DrawFn, queues: list[list[Delta]]) -> list[Delta]:
    """The items of several queues mixed, each queue's own in order."""
    turns = draw(st.permutations([n for n, queue in enumerate(queues) for _ in queue]))
    iterators = [iter(queue) for queue in queues]
    return [next(iterators[n]) for n in turns]


STYLES = st.sampled_from(["absent", "empty", "null", "id repeated"])


@st.composite
def cut_with_an_index(draw: st.DrawFn) -> tuple[Delta, list[Delta]]:
    """A whole reply and its chunks; ids and argument texts are any, calls may be interleaved."""
    ids = st.none() | st.sampled_from(["", "a1", "b2", "functions.bash:0"])
    texts = argument_texts | broken_texts | st.none()
    body = draw(whole_replies(calls=st.lists(st.builds(call, ids, words, texts), max_size=3)))
    calls = body["choices"][0]["message"].get("tool_calls", [])
    entries = call_entries(draw, calls, "given", STYLES)
    if draw(st.booleans()):
        of_call = [[e for e in entries if e["index"] == n] for n in range(len(calls))]
        entries = riffle(draw, of_call)
    return body, cut(draw, body, entries)


@st.composite
def cut_with_ids(
    draw: st.DrawFn, indices: list[str], texts: st.SearchStrategy[str], styles: JSON
) -> tuple[Delta, list[Delta]]:
    """A whole reply and its chunks; each call has an id of its own."""
    made = draw(st.lists(st.tuples(words, texts), max_size=3))
    calls = [call(f"id{n}", name, text) for n, (name, text) in enumerate(made)]
    body = draw(whole_replies(calls=st.just(calls)))
    entries = call_entries(draw, calls, draw(st.sampled_from(indices)), styles)
    return body, cut(draw, body, entries)


@given(cut_with_an_index())
@settings(max_examples=300, deadline=None)
def test_any_cut_with_an_index(pair: tuple[Delta, list[Delta]]) -> None:
    """D03, D04, D05, D06, D08, D09, D16: an index is enough, whatever ids and texts there are."""
    same(*pair)


@given(cut_with_ids(["missing", "null", "zero"], argument_texts | broken_texts, STYLES))
@settings(max_examples=300, deadline=None)
def test_any_cut_without_a_usable_index(pair: tuple[Delta, list[Delta]]) -> None:
    """D01, D02: index missing, null, or 0 for all; ids tell the calls apart."""
    same(*pair)


@given(cut_with_ids(["given", "missing", "null", "zero"], argument_texts, st.just("all repeated")))
@settings(max_examples=200, deadline=None)
def test_any_cut_with_everything_repeated(pair: tuple[Delta, list[Delta]]) -> None:
    """Id and name stand in every piece, as some send them; arguments are objects."""
    same(*pair)


# --------------------------------------------------------------------------- what must not happen

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=6,
)
_KEYS = (
    "id model usage choices delta message content tool_calls function function_call index "
    "finish_reason reasoning refusal type text thinking name arguments prompt_tokens created"
)
odd_bodies = st.recursive(
    json_values,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_KEYS.split()), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(_KEYS.split()), odd_bodies, max_size=5))
@settings(max_examples=300, deadline=None)
def test_nothing_raises(body: Delta) -> None:
    """Whatever JSON comes, a reply comes out whose digest can be taken."""
    for field in ("delta", "message"):
        framed = {"choices": [{field: body, "finish_reason": "stop"}]}
        for each in (body, framed):
            assert reply_digest(from_completion(each).reply)
            assert reply_digest(merged([each, each]).reply)


@given(st.lists(st.lists(st.tuples(st.none() | st.integers(0, 2), words, argument_texts))))
@settings(deadline=None)
def test_no_argument_text_is_lost(entries: list[list[tuple[int | None, str, str]]]) -> None:
    """However odd the entries, all their text is in some call, once."""
    chunks = [
        chunk({"tool_calls": [call(id_, None, text, index=n) for n, id_, text in some]})
        for some in entries
    ]
    reply = merged(chunks).reply
    sent = "".join(text for some in entries for _, _, text in some)
    assert sorted("".join(c.arguments for c in reply.tool_calls)) == sorted(sent)


def test_done_tells_a_cut_stream() -> None:
    """D14: a stream is done when the endpoint said why it stopped."""
    merger = StreamMerger()
    merger.feed(chunk({"content": "fi"}))
    merger.feed(chunk({"content": "ne"}, ""))
    assert not merger.done
    merger.feed(chunk({}, "stop"))
    assert merger.done


# ---------------------------------------------------------------------------------------- details


def test_every_scripted_pair_agrees() -> None:
    """E11: for each quirk with a whole and a streamed form of one reply, they give one reply."""
    pairs = 0
    for name, quirk in QUIRKS.items():
        whole, stream = quirk.whole[-1:], quirk.stream[-1:]
        if quirk.reply is None or not whole or not stream or whole == stream:
            continue
        chunks = _chunks(stream[0])
        if chunks is None or whole[0].status != 200 or whole[0].headers.get("content-encoding"):
            continue
        pairs += 1
        body = json.loads(whole[0].pieces[0])
        assert from_completion(body).reply == merged(chunks).reply == quirk.reply, name
    assert pairs > 60


def _chunks(answer: Answer) -> list[Delta] | None:
    """The chunks of an event stream."""
    try:
        return [chunk for chunk in events.values(answer.pieces) if isinstance(chunk, dict)]
    except ValueError:
        return None


def test_only_the_first_choice_counts() -> None:
    """A second choice (n=2) is not mixed into the first, whole or streamed."""
    whole = completion({"content": "one"})
    whole["choices"].append({"index": 1, "message": {"content": "two"}, "finish_reason": "length"})
    stream = [chunk({"content": "one"}, "stop"), chunk({"content": "two"}, "length")]
    stream[1]["choices"][0]["index"] = 1
    assert from_completion(whole).reply.content == "one"
    assert merged(stream).reply == ModelReply(content="one", finish_reason="stop")


def test_missing_ids_do_not_collide() -> None:
    calls = [
        call("call_1", "a", ""),
        call("", "b", ""),
        call(None, "c", ""),
        call("call_3", "d", ""),
    ]
    reply = from_completion(completion({"tool_calls": calls})).reply
    assert [c.id for c in reply.tool_calls] == ["call_1", "call_2", "call_4", "call_3"]


def test_unknown_fields_are_recorded() -> None:
    """D16: what no record has a place for stands in the details, by position of the call."""
    extra = {"google": {"thought_signature": "c2ln"}}
    calls = [call("a1", "bash", "{}"), call("b2", "bash", "{}", extra_content=extra)]
    body = completion({"content": [{"type": "new", "x": 1}], "tool_calls": calls})
    reply, details = from_completion(body)
    assert details["unknown_parts"] == [{"type": "new", "x": 1}]
    assert details["tool_call_extras"] == {"1": {"extra_content": extra}}
    assert reply.tool_calls[1] == ToolCall("b2", "bash", "{}")


def test_usage_details() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5.0,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    reply, details = from_completion(completion({"content": "x"}, usage=usage))
    assert reply.usage == Usage(10, 5)
    assert (details["cached_tokens"], details["reasoning_tokens"]) == (4, 3)
    other = {"input_tokens": 2, "output_tokens": "many", "prompt_cache_hit_tokens": 1}
    reply, details = from_completion(completion({"content": "x"}, usage=other))
    assert reply.usage == Usage(2, 0)
    assert details["cached_tokens"] == 1
    assert details["usage"] == other


def test_head() -> None:
    body = completion({"content": "x"}, system_fingerprint="fp", service_tier="default")
    details = from_completion(body).details
    assert details["response_id"] == "cmpl-1"
    assert (details["model"], details["created"]) == ("odd-1", 1_700_000_000)
    assert (details["system_fingerprint"], details["service_tier"]) == ("fp", "default")


def test_details_can_be_stored() -> None:
    """E10: whatever an endpoint sends beside the reply, a record can be written of it and read."""
    deep: JSON = []
    for _ in range(900):
        deep = [deep]
    odd = {"type": "hologram", "data": float("nan"), "half": "\ud800", "n": 10**40, "deep": deep}
    body = completion({"content": [odd], "tool_calls": [call("a1", "bash", "{}", more=odd)]})
    body |= {"created": float("inf"), "usage": {**USAGE, "cost": float("-inf"), "deep": deep}}
    details = from_completion(body).details
    assert json.loads(json.dumps(details, allow_nan=False)) == details
    assert details["created"] == "inf"
    assert details["usage"]["cost"] == "-inf"
    kept = {**odd, "data": "nan", "deep": details["unknown_parts"][0]["deep"]}
    assert details["unknown_parts"] == [kept]
    assert json.dumps(kept["deep"]).strip("[]") == '"(nested too deeply)"'


# ----------------------------------------------------------------------------------------- events

EVENTS = (
    '\ufeff: hello\ndata: {"a":\ndata: "é\u2028🚀"}\n\nretry: 1\r\n\r\nid: 1\rdata:[1]\r\rdata:\n\n'
    "event: x\ndata: 2\n\n\ndata: [DONE]\n\ndata: broken"
)


@given(st.lists(st.integers(0, len(EVENTS.encode())), max_size=6).map(sorted))
def test_events_cut_anywhere(places: list[int]) -> None:
    """The values of a stream do not depend on where the network cut it, in a character or not."""
    data = EVENTS.encode()
    pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    assert list(events.values(pieces)) == [{"a": "é\u2028🚀"}, [1], 2]


def test_nothing_behind_the_end_mark_is_waited_for() -> None:
    """D05, D14: a connection that stays open, or breaks, behind the end mark takes nothing away."""

    def pieces() -> Iterator[bytes]:
        yield b"data: 1\n\ndata: [DONE]\n\n"
        raise ConnectionError

    assert list(events.values(pieces())) == [1]
