"""What was on the wire: each HTTP exchange with the model endpoint, kept as it happened.

The `openai` SDK takes an HTTP client as a constructor argument, and the HTTP client takes a
transport. `http_client` builds both with a `Tap` in between, which sees every request and every
byte that comes back, without patching anything, for a whole body and for a stream while the SDK
reads it. An exchange belongs to the call in whose context it was made, so that one client serves
many threads.

Request bodies are not kept, only their SHA-256: `request_body` and `body_bytes` make them again
from a recorded request.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import msgspec

from harness.errors import LackError
from harness.records import JSON, ModelRequest, plain

KEPT_HEADERS = {
    "content-type",
    "date",
    "openai-model",
    "openai-processing-ms",
    "retry-after",
    "retry-after-ms",
    "x-request-id",
}
KEPT_PREFIX = "x-ratelimit-"
CONNECT_SECONDS = 30.0  # for the connection alone: a host that is not there is known sooner


class Exchange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request to the endpoint and what came back, failed attempts included."""

    method: str
    path: str
    """Without query."""
    request_sha256: str
    """Hex, of the request body's bytes."""
    status: int | None = None
    """None when no response came."""
    headers: dict[str, str] = {}
    """Names in lower case; only those of `KEPT_HEADERS` and `KEPT_PREFIX`."""
    body: bytes = b""
    """The response's bytes as far as they came, transfer and content encoding undone."""
    stream: bool = False
    """Whether `body` is a stream of server-sent events."""
    error: str | None = None
    """The kind of error that ended the connection (its name in the HTTP library), None if none."""


# ---------------------------------------------------------------------------------- request body


def request_body(
    name: str,
    request: ModelRequest,
    *,
    stream: bool = False,
    stream_usage: bool = True,
    extra_body: Mapping[str, JSON] | None = None,
) -> dict[str, JSON]:
    """The JSON body that a request becomes, keys in sending order.

    `stream_usage` asks for token counts at the end of a stream. `extra_body` goes in last and
    overrides; a parameter of that name is merged into it. `stream` as a parameter of the request
    wins over the argument.
    """
    params = request.params
    extra = {**(params.pop("extra_body", None) or {}), **(extra_body or {})}
    stream = bool(params.pop("stream", stream))
    body: dict[str, JSON] = {"model": name, "messages": [plain(m) for m in request.messages]}
    if tools := request.tools:
        body["tools"] = tools
    body.update(params)
    if stream:
        body["stream"] = True
        if stream_usage:
            body.setdefault("stream_options", {"include_usage": True})
    body.update(extra)
    return body


def body_bytes(body: JSON) -> bytes:
    """The bytes of a JSON body as they are sent: compact, UTF-8, no NaN or infinity.

    A lone surrogate (models do write half an emoji) has no UTF-8 form, and endpoints refuse its
    escape: it is sent as U+FFFD. Raises ValueError for NaN and infinity.
    """
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # through UTF-16, so that a pair of surrogates becomes the character it means
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


# ------------------------------------------------------------------------------------------- tap


class _Call(msgspec.Struct):
    """The attempt that is being made in this context."""

    exchanges: list[Exchange]
    deadline: float
    """On the monotonic clock."""


_current: ContextVar[_Call | None] = ContextVar("harness_wire_call", default=None)


@contextmanager
def watch(timeout: float) -> Iterator[list[Exchange]]:
    """Collects the exchanges that this context makes; their bodies end after `timeout` seconds."""
    call = _Call([], time.monotonic() + timeout)
    token = _current.set(call)
    try:
        yield call.exchanges
    finally:
        _current.reset(token)


def http_library(client_class: type) -> Any:
    """The module, `httpx2` or `httpx`, that an HTTP client class is built on."""
    for base in client_class.__mro__:
        root = base.__module__.partition(".")[0]
        if root in ("httpx", "httpx2"):
            return importlib.import_module(root)
    raise LackError(
        f"the installed openai package is built on {client_class.__mro__[1].__module__}, "
        "which this version does not know",
        hint="pip install --upgrade gaia-harness[record]",
    )


def http_client(client_class: type, url: str, timeout: float) -> Any:
    """An instance of the SDK's HTTP client class whose traffic with `url` can be watched.

    A proxy that the environment names for the URL is used. No limit on connections: the batch
    size is the limit. Raises LackError for a proxy that cannot be used.
    """
    lib = http_library(client_class)
    limits = lib.Limits(max_connections=None, max_keepalive_connections=None)
    try:
        inner = lib.HTTPTransport(limits=limits, proxy=_proxy(url))
    except (ImportError, ValueError) as error:
        # no word of the error: it can hold the proxy's password
        raise LackError(
            f"the proxy that the environment names cannot be used ({type(error).__name__})",
            hint=f"mend HTTPS_PROXY, or set NO_PROXY, or pip install '{lib.__name__}[socks]'",
        ) from None
    limit = lib.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS))
    return client_class(transport=Tap(lib, inner), timeout=limit)


def _proxy(url: str) -> str | None:
    """The proxy for a URL by the environment's variables; never one for this machine itself."""
    from urllib.request import getproxies, proxy_bypass  # slow to import, and seldom needed

    parts = urlsplit(url)
    host = parts.hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1":
        return None
    if proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


class Tap:
    """A transport around a transport: passes everything on and keeps what came back."""

    def __init__(self, lib: Any, inner: Any) -> None:
        self._lib = lib
        self._inner = inner
        self._body_class = _body_class(lib)

    def handle_request(self, request: Any) -> Any:
        call = _current.get()
        if call is None:
            return self._inner.handle_request(request)
        record = _Record(self._lib, request, call)
        try:
            response = self._inner.handle_request(request)
        except Exception as error:
            record.end(error)
            raise
        record.response = response
        response.stream = self._body_class(record, response.stream)
        return response

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Tap:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)


class _Record:
    """One exchange while it happens; `end` turns it into an `Exchange`, once."""

    def __init__(self, lib: Any, request: Any, call: _Call) -> None:
        self.lib, self.request, self.call = lib, request, call
        self.response: Any = None
        self.pieces: list[bytes] = []
        self._ended = False

    def piece(self, data: bytes) -> None:
        """Keeps received bytes. Raises the library's ReadTimeout when the attempt is too old."""
        self.pieces.append(data)
        if time.monotonic() > self.call.deadline:
            raise self.lib.ReadTimeout("the reply took too long", request=self.request)

    def end(self, error: Exception | None = None) -> None:
        if self._ended:
            return
        self._ended = True
        status, headers, body, stream = None, {}, b"", False
        kind = type(error).__name__ if error else None
        if self.response is not None:
            status = self.response.status_code
            headers = kept_headers(self.response.headers)
            body, whole = _decoded(self.lib, self.response.headers, b"".join(self.pieces))
            stream = "text/event-stream" in headers.get("content-type", "")
            kind = kind or (None if whole else "DecodingError")
        self.call.exchanges.append(
            Exchange(
                method=self.request.method,
                path=self.request.url.path,
                request_sha256=sha256(self.request.read()).hexdigest(),
                status=status,
                headers=headers,
                body=body,
                stream=stream,
                error=kind,
            )
        )


def _body_class(lib: Any) -> type:
    """The library wants response bodies to be of its own class; this one keeps what it passes."""

    class Body(lib.SyncByteStream):  # type: ignore[misc]
        def __init__(self, record: _Record, inner: Any) -> None:
            self._record, self._inner = record, inner

        def __iter__(self) -> Iterator[bytes]:
            try:
                for data in self._inner:
                    self._record.piece(data)
                    yield data
            except Exception as error:
                self._record.end(error)
                raise

        def close(self) -> None:
            try:
                self._inner.close()
            finally:
                self._record.end()

    return Body


def kept_headers(headers: Any) -> dict[str, str]:
    """The headers that may be kept, by allow-list, names in lower case."""
    return {
        name.lower(): value
        for name, value in headers.items()
        if name.lower() in KEPT_HEADERS or name.lower().startswith(KEPT_PREFIX)
    }


def _decoded(lib: Any, headers: Any, raw: bytes) -> tuple[bytes, bool]:
    """The bytes with their content encoding undone, as far as that can be done, and whether."""
    encoding = headers.get("content-encoding")
    if not encoding or not raw:
        return raw, True
    try:
        response = lib.Response(200, headers={"content-encoding": encoding}, content=raw)
        return response.content, True
    except lib.DecodingError:
        return raw, False
