"""What a failed attempt at the model endpoint means: try again (when?), a reply after all, or over.

Providers word the same event in many ways; the words and codes that are known stand in the tables
here. A fault's text is made for people, holds the endpoint's own words cut to one line, and never
holds more of a foreign exception than its message. No text here has been cleaned of the API key:
the model client does that, for it alone knows the key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

import msgspec

from harness.live.waits import told_wait
from harness.live.wire import Exchange
from harness.records import JSON

WORDS_LIMIT = 300  # characters of an endpoint's own words that are shown
UNFINISHED = "unfinished stream"  # label of a stream that gave its end mark and no finish reason
READ_LIMIT = 10_000  # characters of them that are searched for a meaning

_OVERFLOW_CODES = {"context_length_exceeded", "exceed_context_size_error"}
_OVERFLOW = re.compile(
    r"maximum (?:context|model|prompt) length (?:is|of) [\d,]+|[\d,]+ maximum context length"
    r"|context length (?:is|of) only [\d,]+|reached context length of [\d,]+"
    r"|range of input length should be"
    r"|(?:exceed\w*|(?:longer|larger|greater) than) (?:the |this |your |its )?"
    r"(?:available |allowed |model'?s? |max(?:imum)? )*context (?:size|length|window|limit)"
    r"|context[ _]?(?:size|length|window)[ _]?(?:has been |was )?exceed"
    r"|(?:prompt|input)(?: \([^)]*\))? is too long|prompt exceeds max"
    r"|input token count\b.*\b(?:exceeds the maximum|only supports up to)"
    r"|input length\b.{0,40}\bexceeds (?:the )?maximum allowed"
    r"|prompt token count of [\d,]+ exceeds|request body too large .* max size: [\d,]+ tokens"
    r"|exceed\w* (?:the )?model (?:token )?limit|larger than the model input length limit"
    r"|exceed\w* (?:the )?max_(?:seq|input|model)_len"
    r"|max_(?:completion_)?tokens must be at least 1, got -\d+"
    r"|inputs`? tokens? \+ `?max_new_tokens`? must be|inputs`? must have less than [\d,]+ tokens"
    r"|too many tokens: ",
    re.IGNORECASE,
)
_REFUSAL_CODES = {
    "1026",  # MiniMax: sensitive input; its next one: sensitive output
    "1027",
    "1301",  # Zhipu
    "content_filter",
    "content_policy_violation",
    "data_inspection_failed",
    "datainspectionfailed",
    "inputtextsensitivecontentdetected",
    "invalid_prompt",
    "outputtextsensitivecontentdetected",
    "responsibleaipolicyviolation",
}
_REFUSAL = re.compile(
    r"DataInspectionFailed|ResponsibleAIPolicyViolation|ContentPolicyViolation"
    r"|content management policy|content exists risk|content violates usage guidelines"
    r"|your (?:input|prompt) was flagged",
    re.IGNORECASE,
)
_NO_CREDIT_CODES = {
    "insufficient_quota",
    "insufficient_balance",
    "billing_hard_limit_reached",
    "billing_not_active",
    "exceeded_current_quota_error",
    "arrearage",
}
_NOT_A_REPLY = (401, 403, 404, 429)  # never read as an overflow, whatever they say
_GAVE_UP = {"error", "network_error", "insufficient_system_resource", "abort"}

_KEY_HINT = "put a valid key into the variable that --api-key-env names (default OPENAI_API_KEY)"
_PARAMS_HINT = "change the -g parameters; provider-specific ones go into -g 'extra_body={…}'"
_URL_HINT = "check --model and --api-url (usually ending in /v1); GET <api-url>/models lists names"
_PACE_HINT = "run the same command again later, with a smaller --eval-batch-size or more -g retries"
_UP_HINT = "see that the server answers, then run the same command again"
_CREDIT_HINT = "mend the account, then run the same command again: finished samples are kept"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt gave no reply of the model."""

    label: int | str
    """The HTTP status, or `timeout`, `connection`, `broken reply`, `cut stream`, …"""
    text: str
    """What happened and the likely cause, one line."""
    hint: str | None = None
    """The next command."""
    retry: bool = False
    wait: float | None = None
    """Seconds that the endpoint told to wait."""
    reply: str | None = None
    """`context_exceeded` or `refused`: the fault is the model's reply."""
    unreachable: bool = False
    """There was nobody to connect to."""


# -------------------------------------------------------------------------- what the endpoint said


class _Said(msgspec.Struct, frozen=True):
    """An error body, read."""

    words: str
    codes: frozenset[str]
    status: int | None  # a number among the codes that looks like an HTTP status
    tree: JSON


def _read(tree: JSON) -> _Said:
    if isinstance(tree, list) and tree:
        tree = tree[0]  # Gemini sends a list of one
    if not isinstance(tree, Mapping):
        text = tree[:READ_LIMIT] if isinstance(tree, str) else ""
        return _Said(_one_line(text), frozenset(), None, tree)
    error = tree.get("error") or tree
    if isinstance(error, str):
        error = {"message": error}
    layers = [layer for layer in (error, tree) if isinstance(layer, Mapping)]
    for key in ("innererror", "metadata"):
        layers += [layer[key] for layer in layers[:1] if isinstance(layer.get(key), Mapping)]
    words = [word for layer in layers for word in _messages(layer)]
    codes = [layer[key] for layer in layers for key in ("code", "type", "status") if key in layer]
    numbers = [int(str(code)) for code in codes if re.fullmatch(r"[3-5]\d\d", str(code))]
    return _Said(
        _one_line(" ".join(dict.fromkeys(words))[:READ_LIMIT]),
        frozenset(str(code).lower() for code in codes if code),
        numbers[0] if numbers else None,
        tree,
    )


def _messages(layer: Mapping[str, JSON]) -> Iterator[str]:
    for key in ("message", "msg", "raw", "detail"):
        value = layer.get(key)
        if isinstance(value, str) and value:
            yield value
        elif isinstance(value, Mapping):  # Mistral: the same once more, inside the message
            yield from _messages(value)
        elif key == "detail" and isinstance(value, list):  # FastAPI: what is wrong, and where
            for item in value:
                if isinstance(item, Mapping):
                    yield f"{item.get('msg', '')} ({item.get('loc', '')})"


def parse(body: bytes) -> JSON:
    """JSON if it is JSON, else text: of a web page its title."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        text = body[:100_000].decode(errors="replace")
        if "<html" in text[:1000].lower():
            title = re.search(r"<title>(.*?)</title>", text, re.I | re.S)
            return f"(a web page) {title[1] if title else ''}"
        return text


def _one_line(text: str) -> str:
    """Text without line ends, control characters and invisible marks."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def shown(words: str) -> str:
    """An endpoint's words, quoted, cut to a sane length."""
    if len(words) > WORDS_LIMIT:
        words = words[: WORDS_LIMIT - 1] + "…"
    return f"“{words}”" if words else "(no message)"


def error_in(data: Mapping[str, JSON]) -> JSON:
    """The error that a body or chunk with status 200 carries, else None."""
    if error := data.get("error"):
        return error
    if data.get("object") == "error":  # older vLLM
        return dict(data)
    if "choices" not in data and _has_error(data):
        return dict(data)
    base = data.get("base_resp")  # MiniMax: beside `"choices": null`
    if isinstance(base, Mapping) and base.get("status_code"):
        return {"code": base["status_code"], "message": base.get("status_msg")}
    choices = data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return (first.get("error") or None) if isinstance(first, Mapping) else None


def _has_error(data: Mapping[str, JSON]) -> bool:
    """Whether a body is an error without the `error` around it, as gateways send them."""
    return any(_messages(data)) and bool(data.get("code") or data.get("type"))


# ------------------------------------------------------------------------------- kinds of faults


def of_status(
    status: int, headers: Mapping[str, str], body: bytes, max_tokens: JSON = None
) -> Fault:
    """What a response other than 2xx means. `max_tokens` as it was asked for."""
    return _judge(status, headers, _read(parse(body)), max_tokens)


def of_error_body(error: JSON, max_tokens: JSON = None) -> Fault:
    """What an error means that came under status 200, whole or in a stream."""
    said = _read({"error": error})
    status = said.status or (400 if "invalid_request_error" in said.codes else None)
    return _judge(status, {}, said, max_tokens)


def _judge(status: int | None, headers: Mapping[str, str], said: _Said, max_tokens: JSON) -> Fault:
    label: int | str = status if status is not None else "error in reply"
    what = f"HTTP {status}: {shown(said.words)}" if status is not None else shown(said.words)

    def over(cause: str, hint: str) -> Fault:
        return Fault(label=label, text=f"{what}. {cause}", hint=hint)

    if said.codes & _NO_CREDIT_CODES or status == 402:
        return over("The account has no credit or quota left", _CREDIT_HINT)
    said_so = status is None or (status >= 400 and status not in _NOT_A_REPLY)
    if said.codes & _OVERFLOW_CODES or (said_so and _OVERFLOW.search(said.words)):
        if _too_many_asked(said.words, max_tokens):
            return over(
                f"max_tokens={max_tokens} alone fills the model's context",
                "give a smaller -g max_tokens=N",
            )
        return Fault(label=label, text=what, reply="context_exceeded")
    said_so = said_so or status == 403  # some forbid a text in the way others forbid a caller
    if said.codes & _REFUSAL_CODES or (said_so and _REFUSAL.search(said.words)):
        return Fault(label=label, text=what, reply="refused")
    if status is None or status in (408, 409, 429) or status >= 500:
        return Fault(
            label=label,
            text=what,
            hint=_PACE_HINT if status in (409, 429) else _UP_HINT,
            retry=True,
            wait=told_wait(headers, said.tree, said.words),
        )
    if status == 401:
        return over("The endpoint did not accept the key", _KEY_HINT)
    if status == 403:
        return over("The key may not use this model, or not from here", _KEY_HINT)
    if status in (404, 405) or status < 400:
        return over("The model or the address is not known there", _URL_HINT)
    if status == 413:
        return over("The request is too large for this endpoint", "set --context-limit N")
    return over("The endpoint does not accept the request", _PARAMS_HINT)


def _too_many_asked(words: str, max_tokens: JSON) -> bool:
    """Whether the prompt would fit and only `max_tokens` does not: a setting, not an overflow."""
    limit = re.search(r"maximum context length is ([\d,]+)", words, re.I)
    prompt = re.search(r"([\d,]+) (?:in the messages|input tokens)", words, re.I)
    if not (limit and prompt and isinstance(max_tokens, int)):
        return False
    n_limit, n_prompt = (int(found[1].replace(",", "") or 0) for found in (limit, prompt))
    return max_tokens >= n_limit > n_prompt


def of_exception(error: Exception, exchange: Exchange | None, max_tokens: JSON = None) -> Fault:
    """What an exception means that the SDK raised for an attempt with this exchange."""
    import openai

    if exchange is not None and exchange.status is not None and exchange.status >= 300:
        return of_status(exchange.status, exchange.headers, exchange.body, max_tokens)
    if isinstance(error, openai.APIStatusError):
        body = json.dumps(error.body, default=str).encode()
        return of_status(error.status_code, dict(error.response.headers), body, max_tokens)
    cause: BaseException = error.__cause__ or error
    name = type(cause).__name__
    if isinstance(error, openai.APITimeoutError) or name.endswith("Timeout"):
        return Fault(
            label="timeout",
            text="no whole reply within the time limit",
            hint="give it longer with -g timeout=SECONDS, or less to do with -g max_tokens=N",
            retry=True,
        )
    if name in ("LocalProtocolError", "InvalidURL", "UnsupportedProtocol", "TooManyRedirects"):
        # its text can hold a header's value
        return Fault(label=name, text=f"the request could not be sent ({name})", hint=_URL_HINT)
    if isinstance(error, openai.APIConnectionError) or _is_http_error(error):
        answered = exchange is not None and exchange.status is not None
        said = f"{name}: {_one_line(str(cause))}" if str(cause) else name
        return Fault(
            label="connection",
            text=f"the connection {'broke' if answered else 'failed'} ({said[:WORDS_LIMIT]})",
            hint=_UP_HINT,
            retry=True,
            unreachable=name == "ConnectError",
        )
    if isinstance(error, openai.APIResponseValidationError | ValueError | RecursionError):
        return broken_reply(f"the reply cannot be read ({name})")
    if isinstance(error, openai.APIError):
        return of_error_body(error.body or error.message, max_tokens)
    said = f"{type(error).__name__}: {_one_line(str(error))}"
    return Fault(label=type(error).__name__, text=f"the openai package failed ({said[:200]})")


def _is_http_error(error: Exception) -> bool:
    roots = {base.__module__.partition(".")[0] for base in type(error).__mro__}
    return bool(roots & {"httpx", "httpx2", "httpcore", "httpcore2", "ssl"}) or isinstance(
        error, OSError
    )


def broken_reply(text: str) -> Fault:
    """A reply that came through and is not what it should be; another attempt may mend it."""
    return Fault(label="broken reply", text=text, hint=_UP_HINT, retry=True)


def gave_up(finish_reason: str | None) -> Fault | None:
    """The fault that a finish reason stands for when the endpoint, not the model, made the end."""
    if (finish_reason or "").lower() not in _GAVE_UP:
        return None
    return broken_reply(f"the endpoint broke the reply off (finish_reason {finish_reason!r})")


def cut_stream(chunks: int, ended: bool) -> Fault:
    """A stream without a finish reason; `ended` when it had its end mark all the same."""
    what = "finish_reason" if ended else "finish_reason or end mark"
    return Fault(
        label=UNFINISHED if ended else "cut stream",
        text=f"the stream ended after {chunks} chunks without {what}",
        hint="give -g stream=false" if ended else _UP_HINT,
        retry=True,
    )


def of_text(text: str, streamed: bool = False) -> Fault:
    """A response with status 200 that holds neither JSON nor, where asked for, a stream of it."""
    if text.lstrip().startswith("<"):
        return not_a_completion(text)
    if streamed:
        return Fault(
            label="empty stream",
            text="the stream held nothing; some servers cannot stream tool calls",
            hint="give -g stream=false",
            retry=True,
        )
    if re.match(r"\s*(data|event|id|retry)?:", text):
        return Fault(
            label="unasked stream",
            text="the endpoint answered with a stream, which was not asked for",
            hint="give -g stream=true",
        )
    return broken_reply(f"the reply is no JSON: {shown(_one_line(text[:READ_LIMIT]))}")


def not_a_completion(body: JSON) -> Fault:
    """A response with status 200 that is something else."""
    said = _read(parse(body.encode(errors="replace")) if isinstance(body, str) else body)
    return Fault(
        label="no completion",
        text=f"the answer is no chat completion: {shown(said.words)}",
        hint=_URL_HINT,
    )
