"""The real `openai` SDK against a real HTTP server that plays what people report of endpoints."""

from __future__ import annotations

import base64
import importlib
import json
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import pytest

from harness.errors import LackError, ModelError, UsageError
from harness.live import faults, wire
from harness.live.model import Model
from harness.live.wire import Exchange
from harness.records import History, ModelReply, ModelRequest, ToolCall
from tests.quirk_server import QuirkServer
from tests.quirks import OK, QUIRKS, Quirk

openai = pytest.importorskip("openai")

KEY = "sk-canary-0123456789abcdef"
HELLO = ModelRequest([{"role": "user", "content": "hello"}])
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
MakeModel = Callable[..., Model]


@pytest.fixture(scope="module")
def _serving() -> Iterator[QuirkServer]:
    with QuirkServer() as running:
        yield running


@pytest.fixture
def server(_serving: QuirkServer) -> QuirkServer:
    _serving.forget()
    return _serving


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def make(server: QuirkServer, waits: list[float]) -> Iterator[MakeModel]:
    """Makes models that write down how long they would wait."""
    made: list[Model] = []

    def model(name: str, **options: Any) -> Model:
        options = {"api_url": server.url, "api_key": KEY, "sleep": waits.append, **options}
        made.append(Model(name, **options))
        return made[-1]

    yield model
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def _pair(_serving: QuirkServer) -> Iterator[tuple[Model, Model]]:
    found = [
        Model("-", api_url=_serving.url, api_key=KEY, stream=stream, wait_ceiling=400)
        for stream in (False, True)
    ]
    yield found[0], found[1]
    for each in found:
        each.close()


@pytest.fixture
def quirked(
    _pair: tuple[Model, Model], server: QuirkServer, waits: list[float]
) -> Callable[[str, bool], Model]:
    """A model that many tests share, asking for one quirk."""

    def model(name: str, stream: bool) -> Model:
        found = _pair[stream]
        found.name, found.sleep = name, waits.append
        return found

    return model


def scripted(form: str) -> list[str]:
    """Names of the quirks that have a script for a form, and an expectation."""
    return [
        name
        for name, quirk in QUIRKS.items()
        if (quirk.reply is not None or quirk.error)
        and (quirk.stream if form == "stream" else quirk.whole)
        and name not in ("slow", "trickle")  # they take their time
    ]


def check(quirk: Quirk, model: Model, server: QuirkServer, waits: list[float]) -> None:
    """Completes once and compares with what the table says."""
    exchanges: list[Exchange] = []
    if quirk.reply is None:
        with pytest.raises(ModelError) as caught:
            model.complete(HELLO, on_exchange=exchanges.append)
        assert re.search(quirk.error, caught.value.message), caught.value.message
        assert "\n" not in caught.value.message
        assert caught.value.hint
    else:
        reply, about = model.complete(HELLO, on_exchange=exchanges.append)
        assert reply == quirk.reply
        assert len(about["attempts"]) == quirk.attempts
        assert about["latency"] >= 0
        if quirk.waits is not None:
            assert [a["waited"] for a in about["attempts"]] == list(quirk.waits)
            assert waits == list(quirk.waits[:-1])
    assert len(exchanges) == len(server.asked)
    assert [e.request_sha256 for e in exchanges] == [
        sha256(a.raw).hexdigest() for a in server.asked
    ]


@pytest.mark.parametrize("name", scripted("whole"))
def test_quirk_whole(
    name: str, quirked: MakeModel, server: QuirkServer, waits: list[float]
) -> None:
    """D01-D18, E06, E07, E09: what comes of a reply in one piece."""
    check(QUIRKS[name], quirked(name, False), server, waits)


@pytest.mark.parametrize("name", scripted("stream"))
def test_quirk_stream(
    name: str, quirked: MakeModel, server: QuirkServer, waits: list[float]
) -> None:
    """D01-D18, E06, E07, E09: the same of a streamed one; D14: nothing partial comes out."""
    check(QUIRKS[name], quirked(name, True), server, waits)


# ------------------------------------------------------------------------------------ the request


def test_request_as_sent(make: MakeModel, server: QuirkServer) -> None:
    """Messages, tools and parameters go out as they are, unknown ones too, extra_body last."""
    history = History().append({"role": "user", "content": "é\n"})
    call = ToolCall("a1", "bash", "{}")
    history = history.append({"role": "assistant", "content": "", "tool_calls": [call]})
    params = {"temperature": 0, "seed": 7, "top_k": 3, "extra_body": {"min_p": 0.1}}
    request = ModelRequest(history, [TOOL], params)
    make("plain", extra_body={"seed": 8}).complete(request)
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {
        "model": "plain",
        "messages": [
            {"role": "user", "content": "é\n"},
            {"role": "assistant", "content": "", "tool_calls": [call.openai()]},
        ],
        "tools": [TOOL],
        "temperature": 0,
        "seed": 8,
        "top_k": 3,
        "min_p": 0.1,
    }
    body = wire.request_body("plain", request, extra_body={"seed": 8})
    assert asked.raw == wire.body_bytes(body)


def test_no_tools_no_field(make: MakeModel, server: QuirkServer) -> None:
    make("plain").complete(HELLO)
    assert set(server.asked[0].body) == {"model", "messages"}


def test_stream_asks_for_usage(make: MakeModel, server: QuirkServer) -> None:
    make("plain", stream=True).complete(HELLO)
    assert server.asked[0].body["stream"] is True
    assert server.asked[0].body["stream_options"] == {"include_usage": True}


def test_stream_options_refused_once(make: MakeModel, server: QuirkServer) -> None:
    """An endpoint without `stream_options` is asked again without it, and never again with it."""
    model = make("no-stream_options", stream=True, retries=0)
    reply, about = model.complete(HELLO)
    assert reply.content == "fine"
    assert [a["status"] for a in about["attempts"]] == [400, 200]
    model.complete(HELLO)
    assert ["stream_options" in a.body for a in server.asked] == [True, False, False]


def test_stream_options_refused_to_many(server: QuirkServer) -> None:
    """Threads that learn of the refusal at the same moment all go on."""
    model = Model("no-stream_options", api_url=server.url, api_key=KEY, stream=True, retries=0)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: model.complete(HELLO)[0], range(8)))
    assert replies == [OK] * 8
    model.close()


def test_stream_options_of_ones_own(make: MakeModel, server: QuirkServer) -> None:
    """What the user asks for is not taken back: the refusal is an error."""
    own = {"stream_options": {"include_usage": False}}
    model = make("no-stream_options", stream=True, extra_body=own)
    with pytest.raises(ModelError, match="stream_options"):
        model.complete(HELLO)
    assert len(server.asked) == 1


def test_lone_surrogate_is_sent_as_replacement(make: MakeModel, server: QuirkServer) -> None:
    """E10: half an emoji in the history does not stop the sample; a whole one in halves is sent."""
    text = "a \ud83d b \ud83d\ude80 c"
    request = ModelRequest([{"role": "user", "content": text}])
    make("plain").complete(request)
    assert server.asked[0].body["messages"][0]["content"] == "a \ufffd b 🚀 c"
    assert server.asked[0].raw == wire.body_bytes(wire.request_body("plain", request))


def test_not_a_number_is_refused(make: MakeModel, server: QuirkServer) -> None:
    model = make("plain", extra_body={"temperature": float("nan")})
    with pytest.raises(ModelError, match="cannot be written as JSON"):
        model.complete(HELLO)
    assert not server.asked


def test_environment_is_not_read(
    make: MakeModel, server: QuirkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is passed in counts, no key, organisation or address of the environment."""
    for name in ("API_KEY", "ORG_ID", "PROJECT_ID", "ADMIN_KEY"):
        monkeypatch.setenv(f"OPENAI_{name}", "from-the-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    make("plain", api_key=None).complete(HELLO)
    assert "from-the-environment" not in str(server.asked[0].headers)
    assert "openai-organization" not in server.asked[0].headers
    assert server.asked[0].headers["authorization"] == "Bearer none"


# ------------------------------------------------------------------------------ retries and limits


def test_max_tokens_that_never_fit_are_a_setting(make: MakeModel) -> None:
    """D12: a prompt that would fit beside a smaller max_tokens is no overflow."""
    name = "llama-cpp-python-too-long"
    assert make(name).complete(HELLO)[0].error == "context_exceeded"
    body = json.loads(QUIRKS[name].whole[0].pieces[0])
    text = body["error"]["message"]
    for prompt, expected in ((" 5990 in", "context_exceeded"), (" 90 in", None)):
        said = text.replace(" (5990 in", f" ({prompt.strip()}")
        error = {"error": {"message": said, "code": "context_length_exceeded"}}
        fault = faults.of_status(400, {}, json.dumps(error).encode(), max_tokens=5000)
        assert fault.reply == expected
    assert "max_tokens=5000" in fault.text


def test_wait_ceiling_is_a_limit_on_what_is_told(make: MakeModel, waits: list[float]) -> None:
    """D13: exactly the ceiling is waited, more ends the sample."""
    assert make("D13-retry-after", wait_ceiling=90).complete(HELLO)[0] == OK
    assert waits == [90.0]
    with pytest.raises(ModelError, match="told to wait 86400 s"):
        make("D13-over-ceiling", wait_ceiling=89).complete(HELLO)
    assert waits == [90.0]


def test_backoff_doubles_up_to_a_minute(make: MakeModel, waits: list[float]) -> None:
    with pytest.raises(ModelError, match="after 9 attempts"):
        make("D13-never-ends", retries=8, retry_interval=1).complete(HELLO)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_no_retries(make: MakeModel, server: QuirkServer, waits: list[float]) -> None:
    with pytest.raises(ModelError, match="Gave up after 1 attempt\n"):
        make("D13-never-ends", retries=0).complete(HELLO)
    assert len(server.asked) == 1
    assert not waits


@pytest.mark.parametrize("name", ["D13-401", "D13-400", "D13-insufficient_quota", "web-page"])
def test_in_vain_is_asked_once(name: str, make: MakeModel, server: QuirkServer) -> None:
    """D13: what another attempt cannot mend is paid once."""
    with pytest.raises(ModelError):
        make(name).complete(HELLO)
    assert len(server.asked) == 1


@pytest.mark.parametrize(("name", "stream"), [("slow", False), ("slow", True), ("trickle", True)])
def test_time_limit_of_an_attempt(name: str, stream: bool, make: MakeModel) -> None:
    """A reply that does not come, or comes drop by drop, ends at the limit, not at its own end."""
    exchanges: list[Exchange] = []
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"within the time limit.*after 2 attempts"):
        make(name, stream=stream, timeout=0.4, retries=1, on_exchange=exchanges.append).complete(
            HELLO
        )
    assert time.monotonic() - started < 8
    assert [e.error for e in exchanges] == ["ReadTimeout"] * 2


def test_end_mark_without_finish_reason(make: MakeModel) -> None:
    """D14: such a stream is asked again. An endpoint that never gives a reason is believed the
    third time and from then on; one that has given reasons has cut this stream."""
    model = make("D14-never-a-finish", stream=True)
    reply, about = model.complete(HELLO)
    assert (reply.content, reply.finish_reason) == ("fine", None)
    assert [a.get("error") for a in about["attempts"]] == ["unfinished stream"] * 2 + [None]
    assert len(model.complete(HELLO)[1]["attempts"]) == 1
    model.name = "D14-ends-without-finish"  # and without an end mark: cut all the same
    assert len(model.complete(HELLO)[1]["attempts"]) == 2
    model.name = "plain"
    assert model.complete(HELLO)[0] == OK
    model.name = "D14-never-a-finish"
    with pytest.raises(ModelError, match=r"without finish_reason\. Gave up after 6"):
        model.complete(HELLO)
    assert make("D14-never-a-finish").complete(HELLO)[0].content == "fine"


def test_attempts_are_counted(make: MakeModel) -> None:
    """E06: failed attempts are cost notes beside the reply."""
    _, about = make("E06-three-failures").complete(HELLO)
    assert [(a.get("status"), a.get("error")) for a in about["attempts"]] == [
        (429, None),
        (500, None),
        (None, "connection"),
        (200, None),
    ]


def test_details(make: MakeModel) -> None:
    _, about = make("llama-server-plain", stream=True).complete(HELLO)
    assert about["response_id"] == "cmpl-1"
    assert about["model"] == "odd-1"
    assert about["system_fingerprint"] == "b1-0000000"
    assert about["cached_tokens"] == 10
    assert about["usage"]["total_tokens"] == 18


@pytest.mark.parametrize("stream", [False, True])
def test_two_names_for_one_call(stream: bool, make: MakeModel) -> None:
    """llama-cpp-python sends each call under `function_call` too: one call comes out."""
    reply, _ = make("llama-cpp-python-tools", stream=stream).complete(HELLO)
    assert [call.id for call in reply.tool_calls] == ["call__0_bash_cmpl-1"]


# ---------------------------------------------------------------------------------- wire evidence


def test_exchange(make: MakeModel, server: QuirkServer) -> None:
    """The evidence of a failed and of a good attempt; headers by allow-list."""
    exchanges: list[Exchange] = []
    make("D13-retry-after", on_exchange=exchanges.append).complete(HELLO)
    first, second = exchanges
    assert (first.method, first.path, first.status) == ("POST", "/v1/chat/completions", 429)
    assert first.headers["retry-after"] == "90"
    assert json.loads(first.body)["error"]["message"] == "slow down"
    assert second.body == QUIRKS["plain"].whole[0].pieces[0]
    assert (second.status, second.error, second.stream) == (200, None, False)
    assert {name for e in exchanges for name in e.headers} <= {
        "content-type",
        "date",
        "retry-after",
    }


def test_exchanges_of_a_redirect(make: MakeModel) -> None:
    """One attempt can make two exchanges; both are kept, in order."""
    exchanges: list[Exchange] = []
    _, about = make("redirect", on_exchange=exchanges.append).complete(HELLO)
    assert [e.status for e in exchanges] == [307, 200]
    assert len(about["attempts"]) == 1


def test_exchange_of_a_stream(make: MakeModel) -> None:
    """A stream is kept as it came, comments and line ends included; a cut one up to the cut."""
    exchanges: list[Exchange] = []
    make("sse-comments", stream=True, on_exchange=exchanges.append).complete(HELLO)
    assert exchanges[0].stream
    assert exchanges[0].body == b"".join(QUIRKS["sse-comments"].stream[0].pieces)
    exchanges.clear()
    make("D14-cut-after-three", stream=True, on_exchange=exchanges.append).complete(HELLO)
    cut, whole = exchanges
    assert cut.body == b"".join(QUIRKS["D14-cut-after-three"].stream[0].pieces)
    assert (cut.status, cut.error) == (200, "RemoteProtocolError")
    assert whole.error is None


@pytest.mark.parametrize("name", ["E09-gzip", "E09-deflate"])
def test_exchange_holds_the_payload(name: str, make: MakeModel) -> None:
    """E09: content encoding is undone and its header dropped, streamed or not."""
    exchanges: list[Exchange] = []
    make(name, on_exchange=exchanges.append).complete(HELLO)
    make(name, stream=True, on_exchange=exchanges.append).complete(HELLO)
    whole, stream = exchanges
    assert whole.body == QUIRKS["plain"].whole[0].pieces[0]
    assert stream.body == b"".join(QUIRKS["plain"].stream[0].pieces)
    assert "content-encoding" not in {**whole.headers, **stream.headers}


def test_exchange_without_an_answer(make: MakeModel) -> None:
    exchanges: list[Exchange] = []
    make("E06-three-failures", on_exchange=exchanges.append).complete(HELLO)
    assert [e.status for e in exchanges] == [429, 500, None, 200]
    assert exchanges[2].error in ("ReadError", "RemoteProtocolError", "WriteError")


def test_failing_sink_is_not_a_network_error(make: MakeModel, server: QuirkServer) -> None:
    """A full disk under the evidence is not retried as if the endpoint had failed."""

    def full(exchange: Exchange) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        make("plain", on_exchange=full).complete(HELLO)
    assert len(server.asked) == 1


@pytest.mark.parametrize("library", ["httpx2", "httpx"])
def test_threads_keep_their_exchanges(
    library: str, server: QuirkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E11: 16 threads on one client, streamed and not, with either HTTP library of the SDK: each
    call gets its own reply and exactly its own exchanges."""
    http = pytest.importorskip(library)
    if library not in {wire.http_library(openai.DefaultHttpxClient).__name__, "httpx"}:
        pytest.skip("the installed SDK does not take this library's clients")
    monkeypatch.setattr(openai, "DefaultHttpxClient", http.Client)
    models = [Model("echo", api_url=server.url, api_key=KEY, stream=s) for s in (False, True)]

    def work(thread: int) -> list[tuple[str, ModelReply, dict[str, Any], list[Exchange]]]:
        done = []
        for number in range(12):
            said = f"{thread}-{number}-" + "x" * (thread * 7)
            seen: list[Exchange] = []
            request = ModelRequest([{"role": "user", "content": said}])
            model = models[(thread + number) % 2]
            reply, about = model.complete(request, on_exchange=seen.append)
            done.append((said, reply, about, seen))
        return done

    with ThreadPoolExecutor(16) as pool:
        for said, reply, about, seen in (one for done in pool.map(work, range(16)) for one in done):
            assert reply.content == said
            assert about["request_id"] == f"req-{said}"
            (exchange,) = seen
            assert exchange.headers["x-request-id"] == f"req-{said}"
            assert exchange.headers["x-ratelimit-left"] == "9"
            assert "set-cookie" not in exchange.headers
            if not exchange.stream:
                assert json.loads(exchange.body)["choices"][0]["message"]["content"] == said
    assert len(server.asked) == 16 * 12
    for model in models:
        model.close()


# ------------------------------------------------------------------- secrets and foreign errors


def test_key_is_in_no_message(make: MakeModel) -> None:
    """E08: an endpoint repeats the key; neither the message nor the traceback holds it."""
    with pytest.raises(ModelError) as caught:
        make("echo-key").complete(HELLO)
    text = "".join(traceback.format_exception(caught.value)) + str(caught.value)
    assert "wrong key *** given" in text
    for form in (KEY, base64.b64encode(KEY.encode()).decode()):
        assert form not in text


def test_key_cut_in_the_middle(make: MakeModel) -> None:
    """E08: words that are cut to a sane length inside the key show no half of it."""
    model = make("plain")
    for before in range(240, 300):
        error = {"error": {"message": "w" * before + KEY + "w" * 100}}
        fault = faults.of_status(401, {}, json.dumps(error).encode())
        assert KEY[:6] not in str(model._error(fault))


def test_short_key_destroys_no_text(make: MakeModel) -> None:
    with pytest.raises(ModelError, match="no such model"):
        make("D13-404", api_key="o").complete(HELLO)


@pytest.mark.parametrize("key", ["sk-line\nend-of-it", "sk-größe-0123456789", "a\x00b"])
def test_key_that_no_header_carries(key: str) -> None:
    with pytest.raises(LackError) as caught:
        Model("m", api_url="http://127.0.0.1:9/v1", api_key=key)
    assert key[:8] not in str(caught.value)


def test_key_with_a_line_end_behind_it(make: MakeModel, server: QuirkServer) -> None:
    make("plain", api_key=f"{KEY}\n").complete(HELLO)
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "url", ["127.0.0.1:80", "ftp://h/v1", "http://", "http://u:pw@h/v1", "http://h/v1?k=pw"]
)
def test_address_that_cannot_be_used(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Model("m", api_url=url, api_key=KEY)
    assert "pw" not in str(caught.value)


def test_nobody_listens(server: QuirkServer, waits: list[float]) -> None:
    model = Model("m", api_url="http://127.0.0.1:9/v1", api_key=KEY, retries=1, sleep=waits.append)
    with pytest.raises(ModelError, match=r"127\.0\.0\.1:9.*refused.*after 2 attempts") as caught:
        model.complete(HELLO)
    assert caught.value.__cause__ is None
    model.close()


def test_openai_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(LackError, match="openai package is missing") as caught:
        Model("m", api_url=None, api_key=KEY)
    assert caught.value.hint == "pip install 'gaia-harness[record]'"


def _exception_classes() -> list[type[Exception]]:
    """Every exception that the SDK and its HTTP library define."""
    found: set[type[Exception]] = set()
    library = wire.http_library(openai.DefaultHttpxClient)
    for root in (openai.OpenAIError, library.HTTPError, library.StreamError, library.InvalidURL):
        todo = [root]
        while todo:
            todo += (cls := todo.pop()).__subclasses__()
            found.add(cls)
    return sorted(found, key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", _exception_classes(), ids=lambda cls: cls.__name__)
def test_every_foreign_exception_is_mapped(
    cls: type[Exception], quirked: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the SDK raises becomes a ModelError or a reply, with a text for people."""
    library = wire.http_library(openai.DefaultHttpxClient)
    request = library.Request("POST", "http://127.0.0.1:9/v1")
    error = cls.__new__(cls, "planted")
    Exception.__init__(error, "planted")
    status = getattr(cls, "status_code", None)
    error.__dict__.update(
        message="planted",
        body={"message": "planted"},
        request=request,
        response=library.Response(status if isinstance(status, int) else 500, request=request),
    )
    if not isinstance(status, int):
        error.__dict__["status_code"] = 500
    model = quirked("plain", False)

    def post(*args: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(model._client, "post", post)
    with pytest.raises(ModelError, match="model plain at http"):
        model.complete(HELLO)


def test_our_own_mistake_is_not_mapped(make: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the SDK runs inside the mapping: a bug of the merger shows as what it is."""
    module = importlib.import_module("harness.live.model")

    def broken(body: Any) -> Any:
        raise AttributeError("ours")

    monkeypatch.setattr(module, "from_completion", broken)
    with pytest.raises(AttributeError, match="ours"):
        make("plain").complete(HELLO)


def test_a_wait_can_be_broken_off(make: MakeModel, server: QuirkServer) -> None:
    """A sleep that raises (Ctrl-C, a limit) ends the call with that, not with a retry."""

    class Stop(BaseException):
        pass

    def stop(seconds: float) -> None:
        raise Stop

    with pytest.raises(Stop):
        make("D13-never-ends", sleep=stop).complete(HELLO)
    assert len(server.asked) == 1
