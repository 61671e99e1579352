"""The odd endpoints that people report, as a table: name → what is sent, and what must come of it.

A quirk says what it answers to a whole and to a streamed request, attempt by attempt, and which
reply (or which error) the client has to make of both. `tests/quirk_server.py` plays it.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.records import ModelReply, ToolCall, Usage

JSON = Any
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
COUNTED = Usage(11, 7)
LS = '{"command": "ls /data"}'
PWD = '{"command":"pwd"}'


@dataclass(frozen=True)
class Answer:
    """One HTTP response: `pieces` are written one by one, then the connection ends as `end` says.

    whole: as announced; close: by closing, with no length announced; cut: closed too early;
    reset: torn down (before the status line when there are no pieces).
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[bytes, ...] = ()
    chunked: bool = False
    end: Literal["whole", "close", "cut", "reset"] = "whole"
    delay: float = 0.0
    """Seconds before the answer."""
    pause: float = 0.0
    """Seconds after each piece."""

    @classmethod
    def json(cls, body: JSON, status: int = 200, **more: Any) -> Answer:
        headers = {"content-type": "application/json", **more.pop("headers", {})}
        return cls(status, headers, (json.dumps(body).encode(),), **more)

    @classmethod
    def error(
        cls, status: int, message: str, headers: Mapping[str, str] | None = None, **fields: JSON
    ) -> Answer:
        return cls.json({"error": {"message": message, **fields}}, status, headers=headers or {})

    @classmethod
    def sse(cls, *chunks: JSON, done: bool = True, **more: Any) -> Answer:
        events = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
        if done:
            events.append(b"data: [DONE]\n\n")
        return cls.events(*events, **more)

    @classmethod
    def events(cls, *pieces: bytes, **more: Any) -> Answer:
        headers = {"content-type": "text/event-stream; charset=utf-8", **more.pop("headers", {})}
        return cls(200, headers, pieces, **{"chunked": True, **more})


RESET = Answer(end="reset")


@dataclass(frozen=True)
class Quirk:
    """`reply` is what must come out of both forms; `error` a pattern of the ModelError's text."""

    whole: tuple[Answer, ...]
    stream: tuple[Answer, ...]
    reply: ModelReply | None = None
    error: str = ""
    attempts: int = 1
    waits: tuple[float, ...] | None = None
    """Seconds that must have been waited, when they matter."""
    live: Callable[[Mapping[str, JSON]], Answer] | None = None
    """Answers by what is asked, instead of by script."""


# ------------------------------------------------------------------------------ parts of responses


def completion(message: JSON, finish: JSON = "stop", **top: JSON) -> dict[str, JSON]:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {**_head("chat.completion"), "choices": [choice], "usage": USAGE, **top}


def chunk(delta: JSON = None, finish: JSON = None, **top: JSON) -> dict[str, JSON]:
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    return {**_head("chat.completion.chunk"), "choices": [choice], **top}


def usage_chunk(**top: JSON) -> dict[str, JSON]:
    return {**_head("chat.completion.chunk"), "choices": [], "usage": USAGE, **top}


def _head(kind: str) -> dict[str, JSON]:
    return {"id": "cmpl-1", "object": kind, "created": 1_700_000_000, "model": "odd-1"}


def call(id_: JSON, name: JSON, arguments: JSON, **more: JSON) -> dict[str, JSON]:
    return {
        "id": id_,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
        **more,
    }


def rest(arguments: JSON, **more: JSON) -> dict[str, JSON]:
    """The continuation of a call."""
    return {"function": {"arguments": arguments}, **more}


def calls_completion(*calls: JSON, **message: JSON) -> Answer:
    body = {"role": "assistant", "content": None, "tool_calls": list(calls), **message}
    return Answer.json(completion(body, "tool_calls"))


def calls_stream(*deltas: list[JSON], finish: str = "tool_calls") -> Answer:
    """A stream whose chunks bring these lists of `tool_calls` entries."""
    return Answer.sse(
        chunk({"role": "assistant", "content": None}),
        *(chunk({"tool_calls": entries}) for entries in deltas),
        chunk({}, finish),
        usage_chunk(),
    )


def text_stream(*words: JSON, finish: JSON = "stop", **more: Any) -> Answer:
    return Answer.sse(
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": word}) for word in words),
        chunk({}, finish),
        usage_chunk(),
        **more,
    )


def text_completion(text: JSON, finish: JSON = "stop", **more: Any) -> Answer:
    return Answer.json(completion({"role": "assistant", "content": text}, finish), **more)


OK_WHOLE, OK_STREAM = text_completion("fine"), text_stream("fi", "ne")
OK = ModelReply(content="fine", finish_reason="stop", usage=COUNTED)


def calling(*calls: ToolCall, **more: Any) -> ModelReply:
    return ModelReply(tool_calls=calls, finish_reason="tool_calls", usage=COUNTED, **more)


TWO = calling(ToolCall("a1", "bash", LS), ToolCall("b2", "bash", PWD))
TWO_WHOLE = calls_completion(call("a1", "bash", LS), call("b2", "bash", PWD))


def two(*deltas: list[JSON]) -> Quirk:
    """A quirk of the streamed form of the same two calls."""
    return Quirk((TWO_WHOLE,), (calls_stream(*deltas),), TWO)


def arguments(value: JSON, text: str) -> Quirk:
    """One call with these arguments, which must come out as this text."""
    whole = calls_completion(call("a1", "bash", value))
    streamed = calls_stream([call("a1", "bash", value, index=0)])
    return Quirk((whole,), (streamed,), calling(ToolCall("a1", "bash", text)))


def both(*answers: Answer, **expected: Any) -> Quirk:
    """The same answers whatever was asked for."""
    return Quirk(answers, answers, **expected)


def then_ok(*answers: Answer, **expected: Any) -> Quirk:
    """Failures, then a good answer."""
    return Quirk(
        (*answers, OK_WHOLE),
        (*answers, OK_STREAM),
        OK,
        attempts=len(answers) + 1,
        **expected,
    )


def fails_as(status: int, message: str, pattern: str, **fields: JSON) -> Quirk:
    return both(Answer.error(status, message, **fields), error=pattern)


def overflow(answer: Answer) -> Quirk:
    return both(answer, reply=ModelReply(error="context_exceeded"))


def refused(message: JSON, *deltas: JSON, finish: JSON = "stop", **expected: Any) -> Quirk:
    """A refusal: the whole message, and the deltas of its streamed form."""
    streamed = Answer.sse(*(chunk(d) for d in deltas), chunk(None, finish), usage_chunk())
    reply = ModelReply(error="refused", finish_reason=finish, usage=COUNTED, **expected)
    return Quirk((Answer.json(completion(message, finish)),), (streamed,), reply)


_NO_CHOICES = {**_head("chat.completion"), "choices": [], "usage": USAGE}
_THINK = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
_NEW = {"type": "hologram", "data": 1}
_REASONED = {"role": "assistant", "content": "fine"}
_WITH_REASONING = ModelReply(
    content="fine", reasoning="so it is", finish_reason="stop", usage=COUNTED
)
_SPLIT_CHUNK = json.dumps(chunk({"content": "ne"})).replace('"choices"', '\n"choices"').encode()
_TOO_LONG = "This model's maximum context length is 4096 tokens. However, you requested 6000"
_OVERFLOWS = (
    "The decoder prompt (length 60) is longer than the maximum model length of 40.",
    "The prompt (total length 60) is too long to fit (context length 40).",
    "The input (60 tokens) is longer than the model's context length (40 tokens).",
    "Input length (60 tokens) exceeds the maximum allowed length (40 tokens).",
    "prompt too long; exceeded max context length by 20 tokens",
    "The number of tokens to keep is greater than the context length.",
    "The model is loaded with context length of only 40 tokens, which is not enough.",
    "Reached context length of 40 tokens with this model",
    "Context size has been exceeded.",
    "invalid params, context window exceeds limit",
    "Your input exceeds the context window of this model.",
    "the input token count is 60 but the model only supports up to 40",
    "This model's maximum prompt length is 40 but the request contains 60 tokens.",
    "prompt token count of 60 exceeds the limit of 40",
    "Request body too large for odd-1 model. Max size: 40 tokens.",
    "Input validation error: `inputs` must have less than 40 tokens. Given: 60",
    "The sum of prompt length (60.0) and max_tokens (10) should not exceed max_seq_len (40)",
    "too many tokens: the prompt cannot exceed 40 - received 60.",
)
_LLAMA_USAGE = {
    "completion_tokens": 7,
    "prompt_tokens": 11,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 10},
}
_LLAMA = {"system_fingerprint": "b1-0000000", "usage": _LLAMA_USAGE, "timings": {"cache_n": 10}}


def reasoned(**fields: JSON) -> Quirk:
    return Quirk(
        (Answer.json(completion({**_REASONED, **fields})),),
        (
            Answer.sse(
                chunk({"role": "assistant", **{k: v[:3] for k, v in fields.items()}}),
                chunk({k: v[3:] for k, v in fields.items()}),
                chunk({"content": "fine"}, "stop"),
                usage_chunk(),
            ),
        ),
        _WITH_REASONING,
    )


QUIRKS: dict[str, Quirk] = {
    "plain": Quirk((OK_WHOLE,), (OK_STREAM,), OK),
    # ---- tool calls in pieces
    "D01-index-missing": two(
        [call("a1", "bash", "")], [rest(LS)], [call("b2", "bash", PWD[:3])], [rest(PWD[3:])]
    ),
    "D01-index-null": two(
        [call("a1", "bash", LS[:4], index=None)],
        [rest(LS[4:], index=None)],
        [call("b2", "bash", "", index=None)],
        [rest(PWD, index=None)],
    ),
    "D01-index-only-later": two(
        [call("a1", "bash", LS[:4])],
        [rest(LS[4:], index=0)],
        [call("b2", "bash", PWD, index=1)],
    ),
    "D02-index-shared": two(
        [call("a1", "bash", LS, index=0)],
        [call("b2", "bash", "", index=0)],
        [rest(PWD[:5], index=0)],
        [rest(PWD[5:], index=0)],
    ),
    "D02-index-shared-one-chunk": two(
        [call("a1", "bash", LS, index=0), call("b2", "bash", PWD, index=0)]
    ),
    "D02-index-shared-ids-repeated": two(
        [call("a1", "bash", LS[:5], index=0)],
        [call("b2", "bash", PWD[:5], index=0)],
        [call("a1", "", LS[5:], index=0)],
        [call("b2", None, PWD[5:], index=0)],
    ),
    "D03-empty-on-continuation": two(
        [call("a1", "bash", "", index=0)],
        [call("", "", LS[:7], index=0)],
        [call("", "", LS[7:], index=0)],
        [call("b2", "bash", "", index=1)],
        [call("", "", PWD, index=1)],
    ),
    "D03-null-on-continuation": two(
        [call("a1", "bash", None, index=0)],
        [call(None, None, LS, index=0)],
        [call("b2", "bash", None, index=1)],
        [call(None, None, PWD, index=1)],
    ),
    "D04-entries-of-one-call": two(
        [call("a1", "bash", "", index=0), rest(LS[:6], index=0)],
        [rest(LS[6:], index=0), call("b2", "bash", PWD[:2], index=1), rest(PWD[2:], index=1)],
    ),
    "calls-id-per-piece": two(
        [call("a1", "bash", "", index=0)],
        [call("x1", None, LS[:6], index=0)],
        [call("x2", "", LS[6:], index=0)],
        [call("x3", None, "", index=0)],
        [call("b2", "bash", PWD[:4], index=1)],
        [call("x4", None, PWD[4:], index=1)],
    ),
    "calls-index-float": two(
        [call("", "bash", LS[:6], index=0.0), call("b2", "bash", PWD[:6], index=1.0)],
        [rest(PWD[6:], index=1.0)],
        [rest(LS[6:], index=0.0), {"id": "a1", "index": 0.0}],
    ),
    "calls-interleaved": two(
        [call("a1", "bash", LS[:6], index=0), call("b2", "bash", PWD[:6], index=1)],
        [rest(PWD[6:], index=1)],
        [rest(LS[6:], index=0)],
    ),
    "calls-without-ids": Quirk(
        (calls_completion(call(None, "bash", LS), call("", "submit", "{}")),),
        (calls_stream([call(None, "bash", LS, index=0)], [call("", "submit", "{}", index=1)]),),
        calling(ToolCall("call_1", "bash", LS), ToolCall("call_2", "submit", "{}")),
    ),
    "calls-without-first-id": Quirk(
        (calls_completion(call(None, "bash", LS), call("b2", "bash", PWD)),),
        (calls_stream([call("", "bash", LS)], [call("b2", "bash", "")], [rest(PWD)]),),
        calling(ToolCall("call_1", "bash", LS), ToolCall("b2", "bash", PWD)),
    ),
    "call-without-name": Quirk(
        (calls_completion(call("a1", None, LS)),),
        (calls_stream([call("a1", None, LS, index=0)]),),
        calling(ToolCall("a1", "", LS)),
    ),
    "call-of-nothing": Quirk(
        (Answer.json(completion({"content": "fine", "tool_calls": [call("", "", "")]})),),
        (
            Answer.sse(
                chunk({"content": "fine", "tool_calls": [call("", "", "", index=0)]}),
                chunk({"tool_calls": [{"id": "a1", "index": 1, "function": None}]}, "stop"),
                usage_chunk(),
            ),
        ),
        OK,
    ),
    "function_call-only": Quirk(
        (
            Answer.json(
                completion(
                    {"content": None, "function_call": {"name": "bash", "arguments": LS}},
                    "function_call",
                )
            ),
        ),
        (
            Answer.sse(
                chunk({"function_call": {"name": "bash", "arguments": LS[:3]}}),
                chunk({"function_call": {"arguments": LS[3:]}}),
                chunk({}, "function_call"),
                usage_chunk(),
            ),
        ),
        ModelReply(
            tool_calls=(ToolCall("call_1", "bash", LS),),
            finish_reason="function_call",
            usage=COUNTED,
        ),
    ),
    # ---- usage
    "D05-first-chunk-empty": Quirk(
        (OK_WHOLE,),
        (
            Answer.sse(
                {"id": "", "object": "", "model": "", "choices": [], "prompt_filter_results": []},
                chunk({"role": "assistant", "content": ""}),
                chunk({"content": "fine"}),
                chunk({}, "stop"),
                usage_chunk(),
            ),
        ),
        OK,
    ),
    "D05-usage-with-the-last": Quirk(
        (OK_WHOLE,), (Answer.sse(chunk({"content": "fine"}), chunk({}, "stop", usage=USAGE)),), OK
    ),
    "D05-usage-in-every-chunk": Quirk(
        (OK_WHOLE,),
        (
            Answer.sse(
                chunk({"content": "fi"}, usage={"prompt_tokens": 11, "completion_tokens": 3}),
                chunk({"content": "ne"}, "stop", usage=USAGE),
                chunk({}, usage=None),
            ),
        ),
        OK,
    ),
    "D05-usage-in-choice": Quirk(
        (OK_WHOLE,),
        (
            Answer.sse(
                chunk({"content": "fine"}),
                {
                    **_head("chat.completion.chunk"),
                    "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}],
                },
            ),
        ),
        OK,
    ),
    "D05-usage-of-groq": Quirk(
        (OK_WHOLE,),
        (
            Answer.sse(
                chunk({"content": "fine"}, x_groq={"id": "req_1"}),
                chunk({}, "stop", x_groq={"id": "req_1", "usage": USAGE}),
            ),
        ),
        OK,
    ),
    "D05-no-usage": Quirk(
        (Answer.json(completion({"content": "fine"}, usage=None)),),
        (Answer.sse(chunk({"content": "fine"}, "stop")),),
        ModelReply(content="fine", finish_reason="stop"),
    ),
    # ---- arguments
    "D06-arguments-empty": arguments("", ""),
    "D06-arguments-null": arguments(None, ""),
    "D06-arguments-blank": arguments(" ", " "),
    "D07-arguments-cut": arguments('{"command": "cat /da', '{"command": "cat /da'),
    "D08-arguments-string": arguments('"ls"', '"ls"'),
    "D08-arguments-list": arguments('["ls"]', '["ls"]'),
    "D08-arguments-number": arguments("5", "5"),
    "D08-arguments-object": arguments(
        {"command": "ls é", "n": [1, None]}, '{"command":"ls é","n":[1,null]}'
    ),
    "D09-same-id-twice": Quirk(
        (calls_completion(call("a1", "bash", LS), call("a1", "bash", PWD)),),
        (calls_stream([call("a1", "bash", LS, index=0)], [call("a1", "bash", PWD, index=1)]),),
        calling(ToolCall("a1", "bash", LS), ToolCall("a1", "bash", PWD)),
    ),
    "D09-same-id-and-index": Quirk(
        (calls_completion(call("a1", "bash", LS), call("a1", "bash", PWD)),),
        (calls_stream([call("a1", "bash", LS, index=0)], [call("a1", "bash", PWD, index=0)]),),
        calling(ToolCall("a1", "bash", LS), ToolCall("a1", "bash", PWD)),
    ),
    "D10-odd-ids": Quirk(
        (calls_completion(call("functions.bash:0", "bash", LS)),),
        (calls_stream([call("functions.bash:0", "bash", LS, index=0)]),),
        calling(ToolCall("functions.bash:0", "bash", LS)),
    ),
    "D17-submit-between": Quirk(
        (
            calls_completion(
                call("a1", "bash", LS), call("b2", "submit", "{}"), call("c3", "bash", PWD)
            ),
        ),
        (
            calls_stream(
                [call("a1", "bash", LS, index=0), call("b2", "submit", "{}", index=1)],
                [call("c3", "bash", PWD, index=2)],
            ),
        ),
        calling(
            ToolCall("a1", "bash", LS), ToolCall("b2", "submit", "{}"), ToolCall("c3", "bash", PWD)
        ),
    ),
    # ---- reasoning, parts, empty replies
    "D11-reasoning_content": reasoned(reasoning_content="so it is"),
    "D11-reasoning": reasoned(reasoning="so it is"),
    "D11-reasoning-twice": reasoned(reasoning="so it is", reasoning_content="so it is"),
    "D11-reasoning-and-call": Quirk(
        (calls_completion(call("a1", "bash", LS), content="", reasoning_content="look"),),
        (
            Answer.sse(
                chunk({"role": "assistant", "content": None, "reasoning_content": "lo"}),
                chunk({"content": None, "reasoning_content": "ok"}),
                chunk({"tool_calls": [call("a1", "bash", LS, index=0)], "reasoning_content": ""}),
                chunk({"content": ""}, "tool_calls"),
                usage_chunk(),
            ),
        ),
        calling(ToolCall("a1", "bash", LS), reasoning="look"),
    ),
    "D16-content-parts": Quirk(
        (Answer.json(completion({"content": [_THINK, {"type": "text", "text": "fine"}, _NEW]})),),
        (
            Answer.sse(
                chunk({"role": "assistant", "content": [_THINK]}),
                chunk({"content": [{"type": "text", "text": "fi"}]}),
                chunk({"content": [{"type": "text", "text": "ne"}, _NEW]}),
                chunk({"content": []}, "stop"),
                usage_chunk(),
            ),
        ),
        ModelReply(content="fine", reasoning="hm", finish_reason="stop", usage=COUNTED),
    ),
    "D18-empty-length": Quirk(
        (text_completion("", "length"),),
        (text_stream("", finish="length"),),
        ModelReply(finish_reason="length", usage=COUNTED),
    ),
    "D18-thinking-only": Quirk(
        (Answer.json(completion({"content": None, "reasoning_content": "hm"})),),
        (Answer.sse(chunk({"reasoning_content": "hm"}), chunk({}, "stop"), usage_chunk()),),
        ModelReply(reasoning="hm", finish_reason="stop", usage=COUNTED),
    ),
    "E07-everything": Quirk(
        (
            Answer.json(
                completion(
                    {
                        "content": "fine",
                        "reasoning_content": "hm",
                        "tool_calls": [call("a1", "bash", LS), call("b2", "bash", PWD)],
                    },
                    "length",
                )
            ),
        ),
        (
            Answer.sse(
                chunk({"role": "assistant", "reasoning_content": "hm"}),
                chunk({"content": "fine"}),
                chunk({"tool_calls": [call("a1", "bash", LS, index=0)]}),
                chunk({"tool_calls": [call("b2", "bash", PWD, index=1)]}),
                chunk({}, "length"),
                usage_chunk(),
            ),
        ),
        ModelReply("fine", TWO.tool_calls, "hm", None, "length", COUNTED),
    ),
    "E10-lone-surrogate": Quirk(
        (text_completion("half \ud83d and \x00"),),
        (text_stream("half \ud83d", " and \x00"),),
        ModelReply(content="half \ud83d and \x00", finish_reason="stop", usage=COUNTED),
    ),
    # ---- refusals and finish reasons
    "D15-content_filter": refused(
        {"content": None}, {"role": "assistant"}, finish="content_filter"
    ),
    "D15-refusal-text": refused(
        {"content": None, "refusal": "I will not"},
        {"role": "assistant", "refusal": None},
        {"refusal": "I will"},
        {"refusal": " not"},
        refusal="I will not",
    ),
    "D15-refusal-part": refused(
        {"content": [{"type": "refusal", "refusal": "no"}]},
        {"content": [{"type": "refusal", "refusal": "no"}]},
        refusal="no",
    ),
    "D15-refusal-with-content": refused(
        {"content": "well,", "refusal": "no"},
        {"content": "well,"},
        {"refusal": "no"},
        content="well,",
        refusal="no",
    ),
    "D15-message-null": Quirk(
        (Answer.json(completion(None)),),
        (
            Answer.sse(
                {
                    **_head("chat.completion.chunk"),
                    "choices": [{"index": 0, "delta": None, "finish_reason": "stop"}],
                },
                usage_chunk(),
            ),
        ),
        ModelReply(error="refused", finish_reason="stop", usage=COUNTED),
    ),
    "D15-choices-empty": Quirk(
        (Answer.json(_NO_CHOICES),),
        (Answer.sse(usage_chunk()),),
        ModelReply(error="refused", usage=COUNTED),
    ),
    "D15-filter-after-some-text": Quirk(
        (text_completion("fi", "content_filter"),),
        (text_stream("fi", finish="content_filter"),),
        ModelReply(content="fi", finish_reason="content_filter", usage=COUNTED),
    ),
    "D15-finish-unknown": Quirk(
        (text_completion("fine", "eos_token:2"),),
        (text_stream("fine", finish="eos_token:2"),),
        ModelReply(content="fine", finish_reason="eos_token:2", usage=COUNTED),
    ),
    "D15-finish-sensitive": refused({"content": ""}, {"role": "assistant"}, finish="sensitive"),
    "D15-finish-SAFETY": refused({"content": None}, {"role": "assistant"}, finish="SAFETY"),
    "D15-400-content_filter": both(
        Answer.error(400, "The prompt was filtered", code="content_filter"),
        reply=ModelReply(error="refused"),
    ),
    "D15-400-inner-code": both(
        Answer.error(
            400, "filtered", code=None, innererror={"code": "ResponsibleAIPolicyViolation"}
        ),
        reply=ModelReply(error="refused"),
    ),
    "D15-400-data_inspection": both(
        Answer.error(
            400, "Output data may contain inappropriate content.", code="data_inspection_failed"
        ),
        reply=ModelReply(error="refused"),
    ),
    "D15-400-risk": both(
        Answer.error(400, "Content Exists Risk", type="invalid_request_error"),
        reply=ModelReply(error="refused"),
    ),
    "D15-403-moderation": both(
        Answer.error(403, "moderation is on for odd-1 and your input was flagged", code=403),
        reply=ModelReply(error="refused"),
    ),
    "D15-base_resp": both(
        Answer.json(
            {"choices": None, "base_resp": {"status_code": 1027, "status_msg": "output sensitive"}}
        ),
        reply=ModelReply(error="refused"),
    ),
    # ---- context overflow, and what only looks like it
    "D12-code": overflow(Answer.error(400, "too long", code="context_length_exceeded")),
    "D12-words": overflow(Answer.error(400, _TOO_LONG, type="invalid_request_error", code=None)),
    "D12-dashscope": overflow(
        Answer.error(
            400,
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]",
            code="invalid_parameter_error",
        )
    ),
    "D12-characters": overflow(
        Answer.error(
            400,
            "You passed 90000 input characters, the model's context length is only 4096",
            code=400,
        )
    ),
    "D12-vllm-top-level": overflow(
        Answer.json({"object": "error", "message": _TOO_LONG, "code": 400}, 400)
    ),
    "D12-integer-code": overflow(
        Answer.error(
            400,
            "request (6033 tokens) exceeds the available context size (4096 tokens)",
            code=400,
            type="exceed_context_size_error",
        )
    ),
    "D12-mistral": overflow(
        Answer.error(
            400,
            "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        )
    ),
    "D12-anthropic": overflow(
        Answer.error(400, "prompt is too long: 210000 tokens > 200000 maximum")
    ),
    "D12-gemini-list": overflow(
        Answer.json(
            [
                {
                    "error": {
                        "code": 400,
                        "message": "The input token count (1200000) exceeds the maximum number "
                        "of tokens allowed (1048576).",
                    }
                }
            ],
            400,
        )
    ),
    "D12-plain-text": overflow(
        Answer(413, {"content-type": "text/plain"}, (b"input is too long for this model",))
    ),
    "D12-in-200-body": overflow(Answer.json({"error": {"message": _TOO_LONG, "code": 400}})),
    "D12-in-stream": Quirk(
        (Answer.error(400, _TOO_LONG),),
        (Answer.sse({"error": {"message": _TOO_LONG, "code": 400}}, done=False),),
        ModelReply(error="context_exceeded"),
    ),
    "D12-in-stream-top-level": Quirk(
        (Answer.error(400, _TOO_LONG),),
        (Answer.sse({"object": "error", "message": _TOO_LONG, "code": 400}),),
        ModelReply(error="context_exceeded"),
    ),
    "D12-no-error-key": overflow(
        Answer.json({"code": "InvalidParameter", "message": _TOO_LONG, "request_id": "r1"})
    ),
    "D12-no-error-key-in-stream": Quirk(
        (),
        (Answer.events(b"event: error\n", *Answer.sse({"message": _TOO_LONG, "code": 1}).pieces),),
        ModelReply(error="context_exceeded"),
    ),
    "D12-500": overflow(Answer.error(500, _TOO_LONG)),
    **{f"D12-wording-{n}": overflow(Answer.error(400, w)) for n, w in enumerate(_OVERFLOWS)},
    "D12-not-max_tokens": fails_as(
        400,
        "max_tokens is too large: 99999. This model supports at most 4096",
        "HTTP 400.*-?too large",
    ),
    "D12-not-range": fails_as(
        400, "Range of max_tokens should be [1, 8192]", "Range of max_tokens"
    ),
    "D12-not-a-string": fails_as(
        400, "'messages[1].content': string too long, maximum length 9", "HTTP 400"
    ),
    "D12-not-tools": fails_as(400, "'tools': array too long, maximum length 128", "HTTP 400"),
    "D12-not-401": fails_as(
        401, "context_length: wrong key; maximum context length is 1", "HTTP 401"
    ),
    # ---- waits
    "D13-retry-after": then_ok(
        Answer.error(429, "slow down", {"Retry-After": "90"}), waits=(90.0, 0.0)
    ),
    "D13-retry-after-date": then_ok(
        Answer.error(
            503,
            "busy",
            {
                "Date": "Mon, 01 Jan 2024 00:00:00 GMT",
                "Retry-After": "Mon, 01 Jan 2024 00:01:15 GMT",
            },
        ),
        waits=(75.0, 0.0),
    ),
    "D13-retry-after-ms": then_ok(
        Answer.error(429, "slow down", {"retry-after-ms": "1500", "Retry-After": "2"}),
        waits=(1.5, 0.0),
    ),
    "D13-no-header": then_ok(*(Answer.error(429, "slow down"),) * 3, waits=(2.0, 4.0, 8.0, 0.0)),
    "D13-retry-after-nonsense": then_ok(
        Answer.error(429, "slow down", {"Retry-After": "soon"}),
        Answer.error(429, "slow down", {"Retry-After": "0"}),
        Answer.error(429, "slow down", {"Retry-After": "Mon, 01 Jan 1990 00:00:00 GMT"}),
        waits=(2.0, 4.0, 8.0, 0.0),
    ),
    "D13-in-words": then_ok(
        Answer.error(429, "Rate limit reached. Please try again in 20s."),
        Answer.error(429, "Please try again in 6m0s. Visit us."),
        Answer.error(429, "Please retry after 3 seconds."),
        Answer.error(429, "try again in 350ms"),
        waits=(20.0, 360.0, 3.0, 0.35, 0.0),
    ),
    "D13-in-fields": then_ok(
        Answer.json({"error": {"message": "slow", "retry_after": 12}}, 429),
        Answer.json([{"error": {"message": "slow", "details": [{"retryDelay": "34s"}]}}], 429),
        Answer.json({"detail": "slow", "retry_after_ms": 500}, 429),
        waits=(12.0, 34.0, 0.5, 0.0),
    ),
    "D13-over-ceiling": both(
        Answer.error(429, "slow down", {"Retry-After": "86400"}),
        error=r"429.*told to wait 86400 s, longer than the 400 s.*attempt 1",
    ),
    "D13-retry-after-endless": both(
        Answer.error(429, "slow down", {"Retry-After": "9" * 20}),
        error=r"429.*told to wait \d{21} s, longer than the 400 s",
    ),
    "D13-in-days": both(
        Answer.error(429, "Please try again in 1d2h."), error="told to wait 93600 s"
    ),
    "D13-retry-after-unit": then_ok(
        Answer.error(429, "slow down", {"Retry-After": "60s"}),
        Answer.error(429, "slow down", {"Retry-After": "-5"}),
        waits=(60.0, 4.0, 0.0),
    ),
    "D13-never-ends": both(
        Answer.error(503, "overloaded"), error=r"503: “overloaded”\. Gave up after 6 attempts"
    ),
    "D13-401": fails_as(401, "Incorrect API key provided", "401.*did not accept the key"),
    "D13-403": fails_as(403, "not in your region", "403.*may not use this model"),
    "D13-404": fails_as(404, "no such model", "404.*not known there"),
    "D13-400": fails_as(400, "Unsupported parameter: 'top_k'", "400.*does not accept the request"),
    "D13-422": both(
        Answer.json({"detail": [{"msg": "Field required", "loc": ["body", "messages"]}]}, 422),
        error=r"422: “Field required \(\['body', 'messages'\]\)”",
    ),
    "D13-nested-message": both(
        Answer.json(
            {
                "object": "error",
                "message": {"detail": [{"msg": "Extra inputs", "loc": ["body", "top_k"]}]},
                "type": "invalid_request_error",
            },
            422,
        ),
        error=r"422: “Extra inputs \(\['body', 'top_k'\]\)”",
    ),
    "D13-400-under-200": both(
        Answer.json({"error": {"message": "bad tool", "type": "invalid_request_error"}}),
        error="bad tool.*does not accept",
        attempts=1,
    ),
    "D13-402": fails_as(402, "Insufficient Balance", "402.*no credit"),
    "D13-insufficient_quota": fails_as(
        429, "You exceeded your current quota", "429.*no credit", code="insufficient_quota"
    ),
    "D13-retried-statuses": then_ok(
        *(Answer.error(status, "later") for status in (408, 409, 500, 502, 529))
    ),
    # ---- broken streams and connections; the whole form breaks in the way that it can
    "D14-cut-after-three": Quirk(
        (Answer.json(completion({"content": "half"}), end="cut"), OK_WHOLE),
        (
            Answer.sse(
                chunk({"content": "half"}),
                chunk({"content": "b"}),
                chunk({"content": "c"}),
                done=False,
                end="cut",
            ),
            OK_STREAM,
        ),
        OK,
        attempts=2,
    ),
    "D14-cut-after-call": Quirk(
        (RESET, OK_WHOLE),
        (
            Answer.sse(
                chunk({"tool_calls": [call("a1", "bash", LS, index=0)]}),
                chunk({}, "tool_calls"),
                done=False,
                end="cut",
            ),
            OK_STREAM,
        ),
        OK,
        attempts=2,
    ),
    "D14-ends-without-finish": Quirk(
        (Answer.json(None, end="cut"), OK_WHOLE),
        (
            Answer.sse(chunk({"tool_calls": [call("a1", "bash", LS, index=0)]}), done=False),
            OK_STREAM,
        ),
        OK,
        attempts=2,
    ),
    "D14-closes-without-finish": Quirk(
        (
            Answer(200, {"content-type": "application/json"}, (b'{"choices": [',), end="close"),
            OK_WHOLE,
        ),
        (Answer.sse(chunk({"content": "x"}), done=False, chunked=False, end="close"), OK_STREAM),
        OK,
        attempts=2,
    ),
    "D14-reset": Quirk(
        (RESET, OK_WHOLE),
        (Answer.sse(chunk({"content": "x"}), done=False, end="reset"), OK_STREAM),
        OK,
        attempts=2,
    ),
    "D14-stream-empty": Quirk(
        (Answer(200, {"content-type": "application/json"}), OK_WHOLE),
        (Answer.events(), OK_STREAM),
        OK,
        attempts=2,
    ),
    "D14-stream-garbage": Quirk(
        (Answer(200, {"content-type": "application/json"}, (b"{broken",)), OK_WHOLE),
        (Answer.events(b"data: {broken\n\n"), OK_STREAM),
        OK,
        attempts=2,
    ),
    "D14-stream-bad-utf8": Quirk(
        (Answer(200, {"content-type": "application/json"}, (b'"\xff"',)), OK_WHOLE),
        (Answer.events(b'data: "\xff"\n\n'), OK_STREAM),
        OK,
        attempts=2,
    ),
    "D14-error-in-stream": Quirk(
        (Answer.json({"error": {"message": "overloaded", "code": 502}}), OK_WHOLE),
        (Answer.sse(chunk({"content": "x"}), {"error": {"message": "overloaded"}}), OK_STREAM),
        OK,
        attempts=2,
    ),
    "D14-finish-error": Quirk(
        (text_completion("half", "error"), text_completion("half", "network_error"), OK_WHOLE),
        (text_stream("half", finish="error"), text_stream("h", finish="abort"), OK_STREAM),
        OK,
        attempts=3,
    ),
    "D14-event-cut": Quirk(
        (),
        (Answer.events(*OK_STREAM.pieces[:3], b'data: {"choices": [{"del'), OK_STREAM),
        OK,
        attempts=2,
    ),
    "D14-finish-without-end-mark": Quirk((OK_WHOLE,), (text_stream("fi", "ne", done=False),), OK),
    "D14-interrupted": Quirk(
        (),
        (Answer.sse(chunk({"tool_calls": [call("a1", "bash", LS, index=0)]})), OK_STREAM),
        OK,
        attempts=2,
    ),
    "D14-cut-in-a-refusal": Quirk(
        (), (Answer.sse(chunk({"refusal": "I"}), done=False), OK_STREAM), OK, attempts=2
    ),
    # no expectation: it depends on what the endpoint did before
    "D14-never-a-finish": Quirk(
        (text_completion("fine", None),), (Answer.sse(chunk({"content": "fine"}), usage_chunk()),)
    ),
    "E06-three-failures": then_ok(
        Answer.error(429, "slow"), Answer.error(500, "oops"), RESET, waits=(2.0, 4.0, 8.0, 0.0)
    ),
    # ---- encodings and event streams
    "E09-gzip": Quirk(
        (
            Answer(
                200,
                {"content-type": "application/json", "content-encoding": "gzip"},
                (gzip.compress(OK_WHOLE.pieces[0]),),
            ),
        ),
        (
            Answer.events(
                gzip.compress(b"".join(OK_STREAM.pieces)), headers={"content-encoding": "gzip"}
            ),
        ),
        OK,
    ),
    "E09-deflate": Quirk(
        (
            Answer(
                200,
                {"content-type": "application/json", "content-encoding": "deflate"},
                (zlib.compress(OK_WHOLE.pieces[0]),),
            ),
        ),
        (
            Answer.events(
                zlib.compress(b"".join(OK_STREAM.pieces)), headers={"content-encoding": "deflate"}
            ),
        ),
        OK,
    ),
    "E09-gzip-broken": Quirk(
        (
            Answer(
                200, {"content-type": "application/json", "content-encoding": "gzip"}, (b"no gzip",)
            ),
            OK_WHOLE,
        ),
        (Answer.events(b"no gzip", headers={"content-encoding": "gzip"}), OK_STREAM),
        OK,
        attempts=2,
    ),
    "sse-comments": Quirk(
        (OK_WHOLE,),
        (
            Answer.events(
                b": keep-alive\n\n",
                OK_STREAM.pieces[0],
                b": OPENROUTER PROCESSING\n\nevent: x\nid: 4\n",
                *OK_STREAM.pieces[1:],
            ),
        ),
        OK,
    ),
    "sse-crlf": Quirk(
        (OK_WHOLE,),
        (Answer.events(*(piece.replace(b"\n", b"\r\n") for piece in OK_STREAM.pieces)),),
        OK,
    ),
    "sse-bom": Quirk(
        (Answer(200, {}, (b"\xef\xbb\xbf" + OK_WHOLE.pieces[0],)),),
        (Answer.events(b"\xef\xbb", b"\xbf", *OK_STREAM.pieces[1:2], *text_stream("ne").pieces),),
        OK,
    ),
    "sse-cr": Quirk(
        (OK_WHOLE,),
        (Answer.events(*(piece.replace(b"\n", b"\r") for piece in OK_STREAM.pieces)),),
        OK,
    ),
    "sse-without-data": Quirk(
        (OK_WHOLE,),
        (
            Answer.events(
                b"retry: 3000\n\n",
                b"data:\n\ndata: \n\n",
                b"id: 4\n" + OK_STREAM.pieces[0],
                b": keep-alive\n\n",
                b"event: ping\n\n",
                *OK_STREAM.pieces[1:],
            ),
        ),
        OK,
    ),
    "sse-last-event-unended": Quirk(
        (OK_WHOLE,),
        (Answer.events(*OK_STREAM.pieces[:-2], OK_STREAM.pieces[-2].rstrip()),),
        OK,
    ),
    "sse-no-space": Quirk(
        (OK_WHOLE,),
        (Answer.events(*(piece.replace(b"data: ", b"data:") for piece in OK_STREAM.pieces)),),
        OK,
    ),
    "sse-multi-line": Quirk(
        (OK_WHOLE,),
        (
            Answer.events(
                *OK_STREAM.pieces[:2],
                b"data: " + _SPLIT_CHUNK.replace(b"\n", b"\ndata: ") + b"\n\n",
                *OK_STREAM.pieces[3:],
            ),
        ),
        OK,
    ),
    "sse-byte-by-byte": Quirk(
        (OK_WHOLE,),
        (Answer.events(*(bytes([b]) for b in b"".join(text_stream("fi", "ne").pieces))),),
        OK,
    ),
    # ---- endpoints that do something else
    "answers-whole-to-stream": Quirk((OK_WHOLE,), (OK_WHOLE,), OK),
    "mislabelled": Quirk(
        (Answer(200, {"content-type": "text/plain"}, OK_WHOLE.pieces),),
        (Answer(200, {"content-type": "text/plain"}, OK_STREAM.pieces),),
        OK,
    ),
    "no-content-type": Quirk(
        (Answer(), Answer(200, {}, (b"upstream\nreset",)), OK_WHOLE),
        (Answer(), Answer(200, {}, (b"upstream\nreset",)), OK_STREAM),
        OK,
        attempts=3,
    ),
    "never-json": Quirk(
        (Answer(200, {}, (b"upstream\nreset",)),),
        (),
        error="no JSON: “upstream reset”. Gave up after 6 attempts",
    ),
    "streams-unasked": Quirk((OK_STREAM,), (), error="which was not asked for"),
    "nested-deeply": Quirk(
        (Answer(200, {"content-type": "application/json"}, (b'{"choices":' + b"[" * 100_000,)),),
        (Answer.events(b'data: {"choices":' + b"[" * 100_000 + b"\n\n"),),
        error="cannot be read.*Gave up",
    ),
    "web-page": both(
        Answer(
            200, {"content-type": "text/html"}, (b"<!doctype html><html><title>Portal</title>",)
        ),
        error=r"no chat completion: “\(a web page\) Portal”",
    ),
    "other-json": both(Answer.json({"status": "ok"}), error="no chat completion"),
    "other-stream": Quirk((), (Answer.sse({"status": "ok"}),), error="no chat completion"),
    "redirect": Quirk(
        (Answer(307, {"location": "/v1/chat/completions"}), OK_WHOLE),
        (Answer(307, {"location": "/v1/chat/completions"}), OK_STREAM),
        OK,
    ),
    "not-found-page": both(
        Answer(404, {"content-type": "text/html"}, (b"<html><title>404 Not Found</title></html>",)),
        error=r"404: “\(a web page\) 404 Not Found”.*not known there",
    ),
    "no-stream_options": Quirk(
        (OK_WHOLE,),
        (),
        OK,
        live=lambda body: (
            Answer.error(400, "Unrecognized request argument: stream_options")
            if "stream_options" in body
            else OK_STREAM
            if body.get("stream")
            else OK_WHOLE
        ),
    ),
    "slow": both(Answer.json({}, delay=30.0), error="no whole reply within the time limit"),
    "trickle": both(
        Answer.events(*(b": wait\n\n",) * 100, pause=0.1),
        error="no whole reply within the time limit",
    ),
    "echo": Quirk((), (), live=lambda body: _echo(body)),
    "echo-key": both(Answer.error(401, "wrong key sk-canary-0123456789abcdef given"), error="401"),
    # ---- two real servers, their shapes with contents of our own
    "llama-server-plain": Quirk(
        (Answer.json(completion({"role": "assistant", "content": "fine"}, **_LLAMA)),),
        (
            Answer.sse(
                chunk({"role": "assistant", "content": None}),
                chunk({"content": "fi"}),
                chunk({"content": "ne"}),
                chunk({}, "stop"),
                usage_chunk(**_LLAMA),
            ),
        ),
        OK,
    ),
    "llama-server-json": Quirk(
        (text_completion('{\n\n"answer": "x"\n}'),),
        (text_stream("{\n\n", '"answer": "x"', "\n}"),),
        ModelReply(content='{\n\n"answer": "x"\n}', finish_reason="stop", usage=COUNTED),
    ),
    "llama-server-tools": Quirk(
        (calls_completion(call("84rP", "bash", LS), content=""),),
        (
            calls_stream(
                [call("84rP", "bash", "{", index=0)],
                *([rest(LS[n], index=0)] for n in range(1, len(LS))),
            ),
        ),
        calling(ToolCall("84rP", "bash", LS)),
    ),
    "llama-server-bad-choice": fails_as(
        400, "Invalid tool_choice: banana", "Invalid tool_choice", code=400
    ),
    "llama-cpp-python-tools": Quirk(
        (
            calls_completion(
                call("call__0_bash_cmpl-1", "bash", LS),
                function_call={"name": "bash:", "arguments": LS},
            ),
        ),
        (
            Answer.sse(
                chunk(
                    {
                        "role": None,
                        "content": None,
                        "function_call": {"name": "bash:", "arguments": LS},
                    }
                ),
                chunk({"tool_calls": [call("call__0_bash_cmpl-1", "bash:", LS, index=0)]}),
                chunk({}, "tool_calls"),
                usage_chunk(),
            ),
        ),
    ),
    "llama-cpp-python-required": both(
        Answer.error(500, "", type="internal_server_error", code=None),
        error=r"500: \(no message\)\. Gave up after 6 attempts",
    ),
    "llama-cpp-python-stream": Quirk(
        (), (Answer.events(),), error="the stream held nothing.*Gave up after 6 attempts"
    ),
    "llama-cpp-python-too-long": overflow(
        Answer.error(
            400,
            _TOO_LONG + " tokens (5990 in the messages, 10 in the completion).",
            type="invalid_request_error",
            param="messages",
            code="context_length_exceeded",
        )
    ),
}


def _echo(body: Mapping[str, JSON]) -> Answer:
    """Says the last message back, in three pieces when streamed, with an id made of it."""
    said = str(body["messages"][-1]["content"])
    headers = {"x-request-id": f"req-{said}", "set-cookie": "secret=1", "x-ratelimit-left": "9"}
    if not body.get("stream"):
        return text_completion(said, headers=headers)
    third = max(1, len(said) // 3)
    return text_stream(
        said[:third], said[third : 2 * third], said[2 * third :], headers=headers, pause=0.003
    )
