"""A real small model behind a real server (`scripts/llama-server start`), through the real client.

Its words are what they are: only shapes are asserted. HARNESS_LLM_URL names the server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from harness.live.model import Model
from harness.live.wire import Exchange
from harness.records import ModelRequest

pytestmark = pytest.mark.llm


def tool(name: str, field: str) -> dict[str, object]:
    parameters = {
        "type": "object",
        "properties": {field: {"type": "string"}},
        "required": [field],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    url = os.environ.get("HARNESS_LLM_URL")
    if not url:
        if os.environ.get("CI"):
            pytest.fail("HARNESS_LLM_URL is not set; scripts/llama-server start prints it")
        pytest.skip("no model server; scripts/llama-server start prints a URL for HARNESS_LLM_URL")
    found = Model("smollm2", api_url=url, api_key=None, timeout=240, retries=1)
    yield found
    found.close()


def test_plain_completion(model: Model) -> None:
    question = {"role": "user", "content": "Name a colour."}
    exchanges: list[Exchange] = []
    reply, about = model.complete(
        ModelRequest([question], (), {"max_tokens": 12, "temperature": 0}),
        on_exchange=exchanges.append,
    )
    assert reply.error is None
    assert reply.content
    assert not reply.tool_calls
    assert reply.finish_reason in ("stop", "length")
    assert reply.usage.input_tokens > 0
    assert 0 < reply.usage.output_tokens <= 13
    assert about["response_id"]
    assert [attempt.get("status") for attempt in about["attempts"]][-1] == 200
    assert exchanges[-1].status == 200
    assert not exchanges[-1].stream


def test_streamed_completion(model: Model) -> None:
    question = {"role": "user", "content": "Name a colour."}
    params = {"max_tokens": 12, "temperature": 0, "stream": True}
    exchanges: list[Exchange] = []
    reply, _ = model.complete(ModelRequest([question], (), params), on_exchange=exchanges.append)
    assert reply.content, exchanges[-1].body
    assert reply.finish_reason in ("stop", "length")
    assert exchanges[-1].stream


def test_tools(model: Model) -> None:
    """Calls come out with our names, an id, and arguments as text; or text comes out."""
    request = ModelRequest(
        [
            {"role": "system", "content": "Use bash to run a command, submit to answer."},
            {"role": "user", "content": "List the files in /tmp."},
        ],
        [tool("bash", "command"), tool("submit", "answer")],
        {"max_tokens": 64, "temperature": 0, "tool_choice": "auto"},
    )
    reply, _ = model.complete(request)
    assert reply.error is None
    assert reply.content or reply.tool_calls
    for call in reply.tool_calls:
        assert call.id
        assert call.name in ("bash", "submit")
        assert isinstance(call.arguments, str)


def test_too_long(model: Model) -> None:
    """The server's own refusal of a prompt beyond its context is the reply it is."""
    reply, _ = model.complete(ModelRequest([{"role": "user", "content": "word " * 9000}]))
    assert reply.error == "context_exceeded"
