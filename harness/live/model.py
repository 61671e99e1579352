"""The live model: one chat completion through the `openai` SDK, retries and all, to one reply.

Everything that is not the model's word stays below this line: failed attempts, waiting, broken
streams, providers' dialects. What comes out is a `ModelReply` (a context overflow and a refusal
are replies too) or a `ModelError`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from harness.errors import LackError, ModelError, UsageError
from harness.live import events, faults, wire
from harness.live.faults import Fault
from harness.live.merge import Merged, StreamMerger, from_completion
from harness.live.wire import Exchange
from harness.records import JSON, ModelReply, ModelRequest

OPENAI_URL = "https://api.openai.com/v1"
LONGEST_BACKOFF = 60.0  # seconds; a longer wait has to be told by the endpoint
_END_MARK = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]")
_SHORTEST_SECRET = 8  # characters; blotting out shorter keys would destroy ordinary text


class Model:
    """A model behind an OpenAI-compatible endpoint. One instance serves all threads of a run.

    `timeout`: seconds for one HTTP attempt, streams included. `retries`: further attempts after
    the first. `retry_interval`: seconds before the first retry, doubled for each one after it,
    at most `LONGEST_BACKOFF`. `wait_ceiling`: the longest single wait that an endpoint may ask
    for, in seconds; when it asks for more, the call fails. `extra_body`: provider-specific fields,
    merged into every request body last. `on_exchange` is called in the calling thread with each
    attempt's HTTP exchange, in order, before the next attempt. `sleep` does the waiting.

    Nothing is read from the environment but proxy settings.
    """

    def __init__(
        self,
        name: str,
        *,
        api_url: str | None,
        api_key: str | None,
        stream: bool = False,
        timeout: float = 300.0,
        retries: int = 5,
        retry_interval: float = 2.0,
        wait_ceiling: float = 300.0,
        extra_body: Mapping[str, JSON] | None = None,
        on_exchange: Callable[[Exchange], None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Makes no request. `note` is told why a request has to be repeated, each cause once.

        Raises LackError without the `openai` package or a usable key, UsageError for an address
        that is none.
        """
        self.name = name
        self.stream = stream
        self.timeout = timeout
        self.retries = retries
        self.retry_interval = retry_interval
        self.wait_ceiling = wait_ceiling
        self.extra_body = dict(extra_body or {})
        self.url = _checked_url(api_url or OPENAI_URL)
        self._key = _checked_key(api_key)
        self._on_exchange = on_exchange
        self.sleep = sleep
        self._note = note
        self._noted: set[int | str] = set()
        self._answered = False
        self._stream_usage = True  # until the endpoint refuses `stream_options`
        self._gives_reasons: bool | None = None  # to finish a stream; None: not known yet
        self._sdk, self._client = _connect(self.url, self._key, timeout)

    def complete(
        self,
        request: ModelRequest,
        *,
        on_exchange: Callable[[Exchange], None] | None = None,
    ) -> tuple[ModelReply, dict[str, JSON]]:
        """The reply to a request, and its metadata, which no loop sees.

        Metadata: what `Merged.details` names, `request_id`, `latency` (seconds of the attempt
        that gave the reply), and `attempts`: one entry for each request that was sent and may
        have been billed, `{"status" or "error": …, "waited": seconds after it}`. `on_exchange`
        takes the place of the instance's for this call. Raises ModelError.
        """
        report = on_exchange or self._on_exchange
        attempts: list[dict[str, JSON]] = []
        failures = 0
        while True:
            body = self._body(request)
            started = time.monotonic()
            outcome, exchanges = self._attempt(body, self._believes_end_mark(attempts))
            if isinstance(outcome, Merged):
                outcome = faults.gave_up(outcome.reply.finish_reason) or outcome
            latency = time.monotonic() - started
            self._answered = self._answered or any(e.status is not None for e in exchanges)
            if report is not None:
                for exchange in exchanges:
                    report(exchange)
            label = 200 if isinstance(outcome, Merged) else outcome.label
            key = "status" if isinstance(label, int) else "error"
            attempts.append({key: label, "waited": 0.0})
            if isinstance(outcome, Fault) and outcome.reply:
                said = {"endpoint_said": self._clean(outcome.text)}
                outcome = Merged(ModelReply(error=outcome.reply), said)
            if isinstance(outcome, Merged):
                about = {**outcome.details, **_about(exchanges)}
                return outcome.reply, {**about, "latency": latency, "attempts": attempts}
            if self._stream_usage_refused(outcome) and body != self._body(request):
                continue
            wait = self._wait(outcome, failures, len(attempts))
            failures += 1
            attempts[-1]["waited"] = wait
            if isinstance(outcome, Fault) and outcome.label not in self._noted:
                self._noted.add(outcome.label)
                self._note(f"{self._place()}: {self._clean(outcome.text)}; trying again")
            self.sleep(wait)

    def close(self) -> None:
        """Closes the connections; the instance is of no use after that."""
        self._client.close()

    def _body(self, request: ModelRequest) -> dict[str, JSON]:
        return wire.request_body(
            self.name,
            request,
            stream=self.stream,
            stream_usage=self._stream_usage,
            extra_body=self.extra_body,
        )

    def _attempt(
        self, body: dict[str, JSON], take_unfinished: bool
    ) -> tuple[Merged | Fault, list[Exchange]]:
        """One request. Only foreign code runs inside the `try`: our own mistakes stay visible."""
        max_tokens = body.get("max_completion_tokens", body.get("max_tokens"))
        try:
            sent = json.loads(wire.body_bytes(body))
        except ValueError as error:
            raise ModelError(f"the request cannot be written as JSON: {error}") from None
        chunks: list[JSON] = []
        data: Any = None
        fault: Fault | None = None
        with wire.watch(self.timeout) as exchanges:
            try:
                if body.get("stream"):
                    chunks = self._streamed(sent)
                else:
                    data = self._post(sent)
            except Exception as error:
                last = exchanges[-1] if exchanges else None
                fault = faults.of_exception(error, last, max_tokens)
        if fault is not None:
            return fault, exchanges
        received = exchanges[-1].body if exchanges else b""
        if not body.get("stream"):
            return _whole_reply(data, max_tokens), exchanges
        outcome = _streamed_reply(chunks, received, max_tokens, take_unfinished)
        if isinstance(outcome, Merged) and not outcome.reply.error:
            self._gives_reasons = outcome.reply.finish_reason is not None
        return outcome, exchanges

    def _post(self, body: JSON, **stream: Any) -> Any:
        """The parsed response. The SDK's own types stay out of it: they differ by version, and
        so does what they make of fields that they do not know."""
        return self._client.post("/chat/completions", body=body, cast_to=object, **stream)

    def _streamed(self, body: JSON) -> list[JSON]:
        stream = self._post(body, stream=True, stream_cls=self._sdk.Stream[object])
        try:
            return list(events.values(stream.response.iter_bytes()))
        finally:
            stream.close()

    def _believes_end_mark(self, attempts: list[dict[str, JSON]]) -> bool:
        """Whether an end mark without a finish reason may end a stream: if no stream here ever
        had a reason, and three in a row had none."""
        if self._gives_reasons is not None:
            return not self._gives_reasons
        before = [attempt.get("error") for attempt in attempts[-2:]]
        return before == [faults.UNFINISHED] * 2

    def _stream_usage_refused(self, fault: Fault) -> bool:
        """Whether the endpoint refused our asking for token counts in a stream; then no more."""
        refused = fault.label in (400, 422) and "stream_options" in fault.text
        self._stream_usage = self._stream_usage and not refused
        return refused

    def _wait(self, fault: Fault, failures: int, attempts: int) -> float:
        """Seconds until the next attempt. Raises ModelError when there is to be none."""
        if not fault.retry:
            raise self._error(fault)
        if failures >= self.retries:
            raise self._error(fault, f"Gave up after {attempts} attempt{'s'[: attempts - 1]}")
        if fault.wait is None:
            return min(self.retry_interval * 2.0 ** min(failures, 60), LONGEST_BACKOFF)
        if fault.wait > self.wait_ceiling:
            raise self._error(
                fault,
                f"It told to wait {fault.wait:.0f} s, longer than the {self.wait_ceiling:.0f} s "
                f"that are allowed (attempt {attempts})",
            )
        return fault.wait

    def _error(self, fault: Fault, end: str = "") -> ModelError:
        text = f"{self._place()}: {fault.text}" + (f". {end}" if end else "")
        error = ModelError(self._clean(text), hint=fault.hint)
        error.unreachable = fault.unreachable and not self._answered
        return error

    def _place(self) -> str:
        return f"model {self.name} at {self.url}"

    def _clean(self, text: str) -> str:
        """Text without the key: endpoints and libraries do repeat it."""
        if self._key and len(self._key) >= _SHORTEST_SECRET:
            for form in (self._key, quote(self._key, safe="")):
                text = text.replace(form, "***")
                for end in range(len(form) - 1, 3, -1):  # where the text was cut inside the key
                    text = text.replace(form[:end] + "…", "***…")
        return text


# ------------------------------------------------------------------------------ reading a response


def _whole_reply(data: JSON, max_tokens: JSON) -> Merged | Fault:
    """The reply in a response that was not asked for as a stream."""
    if isinstance(data, str):  # the SDK does not parse what is not called JSON
        parsed = faults.parse(data.encode(errors="replace"))
        if not isinstance(parsed, Mapping):
            return faults.of_text(data)
        data = parsed
    if not isinstance(data, Mapping):
        return faults.not_a_completion(data)
    if error := faults.error_in(data):
        return faults.of_error_body(error, max_tokens)
    if "choices" not in data:
        return faults.not_a_completion(data)
    return from_completion(data)


def _streamed_reply(
    chunks: list[JSON], received: bytes, max_tokens: JSON, take_unfinished: bool
) -> Merged | Fault:
    """The reply in the chunks of a stream; `received` are the bytes that they came in.

    An end mark without a finish reason is how llama.cpp's Python server ends a stream that it
    gave up for another request. `take_unfinished`: this endpoint seems to end all streams so.
    """
    read = [chunk for chunk in chunks if isinstance(chunk, Mapping)]
    if not read:
        whole = faults.parse(received)
        if isinstance(whole, Mapping):  # an endpoint that does not stream
            return _whole_reply(whole, max_tokens)
        return faults.of_text(received.decode(errors="replace"), streamed=True)
    merger = StreamMerger()
    for chunk in read:
        if error := faults.error_in(chunk):
            return faults.of_error_body(error, max_tokens)
        merger.feed(chunk)
    if not any("choices" in chunk for chunk in read):
        return faults.not_a_completion(read[0])
    merged = merger.result()
    if merger.done:
        return merged
    ended = _END_MARK.search(received) is not None
    if ended and (take_unfinished or merged.reply.error):
        return merged
    return faults.cut_stream(len(read), ended)


def _about(exchanges: list[Exchange]) -> dict[str, JSON]:
    request_id = exchanges[-1].headers.get("x-request-id") if exchanges else None
    return {"request_id": request_id} if request_id else {}


# ---------------------------------------------------------------------------------------- the SDK


def _connect(url: str, key: str | None, timeout: float) -> tuple[Any, Any]:
    """The SDK and a client of it that reads no variable of the environment."""
    try:
        import openai
    except ImportError:
        raise LackError(
            "the openai package is missing, and live models need it",
            hint="pip install 'gaia-harness[record]'",
        ) from None
    http = wire.http_client(openai.DefaultHttpxClient, url, timeout)
    client = openai.OpenAI(
        base_url=url,
        api_key=key or "none",
        organization="",
        project="",
        max_retries=0,
        timeout=http.timeout,
        http_client=http,
    )
    # given as empty, so that it does not look for them; sent as absent
    client.organization = client.project = None
    return openai, client


def _checked_url(url: str) -> str:
    """A base address fit for messages: nothing but http(s), host and path."""
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(
            "the address of the model endpoint is no http(s) URL",
            hint="give --api-url like http://127.0.0.1:8000/v1",
        )
    if parts.username or parts.password or parts.query:
        raise UsageError(
            f"the address of the model endpoint {parts.hostname} carries a user, password or query",
            hint="keep secrets out of --api-url: the key goes into the --api-key-env variable",
        )
    return url.strip().rstrip("/")


def _checked_key(key: str | None) -> str | None:
    """The key without white space around it. Raises LackError if no HTTP header can carry it."""
    key = key.strip() if key else None
    if key and not (key.isascii() and key.isprintable()):
        raise LackError(
            "the API key holds a character that no HTTP header can carry",
            hint="set the variable that --api-key-env names again, without line ends or quotes",
        )
    return key or None
