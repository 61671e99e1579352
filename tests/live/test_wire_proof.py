"""Evidence of real recordings, played when the server is gone; and every odd endpoint, proved."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from harness.cassette import ModelEffect, read_cassette
from harness.dataset import load
from harness.interop.wire_proof import prove
from harness.live.backend import LiveWorld
from harness.live.model import Model
from harness.records import BashReply, ModelReply, Sample, Settings
from harness.runfile import RunSettings, read_run
from harness.store import Store, sample_key
from tests.live.line import harness, offline, policy, recording
from tests.quirk_server import QuirkServer
from tests.quirks import QUIRKS
from tests.scripted import config, dataset, take
from tests.wired import change_evidence, with_fields

vcr = pytest.importorskip("vcr")
openai = pytest.importorskip("openai")

FORMS = {"streamed": "true", "whole": "false"}
KEY = "sk-canary-0123456789abcdef"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all of `mini`, five samples in flight, streamed and not; the server is gone."""
    folder = tmp_path_factory.mktemp("recorded")
    variables = {"HARNESS_CACHE": str(folder / "cache"), "OPENAI_API_KEY": KEY}
    with policy(folder / "server", "--flaky") as server:
        for run, stream in FORMS.items():
            done = harness(
                *recording(
                    folder / "st", server, "--network", "--sandbox", "local", "--limit", "26",
                    "--eval-batch-size", "5", "-g", f"stream={stream}", run=run,
                ),
                variables=variables,
                timeout=600,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
        done = harness(
            *recording(
                folder / "st", server, "--network", "--sandbox", "local", "--limit", "3",
                "--no-wire", run="bare",
            ),
            variables=variables,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    return folder / "st"


def test_every_reply_is_made_again_when_the_server_is_gone(recorded: Path, tmp_path: Path) -> None:
    done = harness(
        "verify", "--wire", "--store", str(recorded), variables=offline(tmp_path), timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for run in FORMS:
        replies = read_run(Store(recorded), run)
        steps = sum(entry.steps for entry in replies.samples)
        assert len(replies.samples) >= 24
        assert f"{run}: {steps} of {steps} model replies made again from the wire, 0 diff" in (
            done.stdout
        )
    # one step was answered once by 429
    assert "streamed: 1 exchanges of failed attempts gave no reply; not played" in done.stdout


@pytest.mark.parametrize("run", FORMS)
@pytest.mark.parametrize("matched", [(), ("method", "uri", "body")])
def test_exported_cassettes_replay_under_plain_vcrpy(
    recorded: Path, tmp_path: Path, run: str, matched: tuple[str, ...]
) -> None:
    """With the plain SDK: the same texts and tool calls, in order; without a key anywhere."""
    done = harness(
        "export", run, "--format", "vcr", "-o", str(tmp_path / "out"), "--store", str(recorded)
    )
    assert done.returncode == 0, done.stderr
    assert "synthesised" not in done.stderr
    store = Store(recorded)
    found = read_run(store, run)
    base = found.settings.transport["api_url"]
    player = vcr.VCR(record_mode="none", **({"match_on": matched} if matched else {}))
    client = openai.OpenAI(base_url=base, api_key="none", max_retries=0)
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == sorted(f"{sample_key(e.task_id, e.epoch)}.yaml" for e in found.samples)
    for entry in found.samples:
        assert entry.cassette is not None
        tape = read_cassette(store, entry.cassette, "it")
        path = tmp_path / "out" / f"{sample_key(entry.task_id, entry.epoch)}.yaml"
        assert KEY not in path.read_text()
        assert "authorization" not in path.read_text().lower()
        with player.use_cassette(str(path)) as cassette:
            for index, request in tape.requests():
                effect = tape.effects[index]
                assert isinstance(effect, ModelEffect)
                assert effect.reply is not None
                if effect.reply.error == "context_exceeded":
                    with pytest.raises(openai.BadRequestError):
                        ask(client, request, stream=run == "streamed")
                    continue
                said, calls = ask(client, request, stream=run == "streamed")
                assert said == (effect.reply.content or "")
                assert calls == [(c.id, c.name, c.arguments) for c in effect.reply.tool_calls]
            assert cassette.all_played


def ask(client: Any, request: Any, *, stream: bool) -> tuple[str, list[tuple[str, str, str]]]:
    """Text and tool calls, put together as users of the SDK do it."""
    given = {"model": request.model, "messages": request.messages, "tools": request.tools}
    if not stream:
        message = client.chat.completions.create(**given).choices[0].message
        calls = message.tool_calls or []
        return message.content or "", [(c.id, c.function.name, c.function.arguments) for c in calls]
    options = {"include_usage": True}
    text = ""
    pieces: dict[int, list[str]] = {}
    for chunk in client.chat.completions.create(**given, stream=True, stream_options=options):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                known = pieces.setdefault(call.index, ["", "", ""])
                known[0] = call.id or known[0]
                known[1] += call.function.name or ""
                known[2] += call.function.arguments or ""
    return text, [(known[0], known[1], known[2]) for known in pieces.values()]


def test_a_run_without_evidence_exports_synthesised_responses(
    recorded: Path, tmp_path: Path
) -> None:
    done = harness(
        "export", "bare", "--format", "vcr", "-o", str(tmp_path / "out"), "--store", str(recorded)
    )
    assert done.returncode == 0, done.stderr
    store = Store(recorded)
    run = read_run(store, "bare")
    steps = sum(entry.steps for entry in run.samples)
    told = f"note: {steps} of {steps} responses are synthesised from the recorded replies"
    assert told in done.stderr
    entry = run.samples[0]
    assert entry.cassette is not None
    tape = read_cassette(store, entry.cassette, "it")
    path = tmp_path / "out" / f"{sample_key(entry.task_id, 1)}.yaml"
    interactions = yaml.safe_load(path.read_text())["interactions"]
    base = interactions[0]["request"]["uri"].removesuffix("/chat/completions")
    stream = '"stream":true' in interactions[0]["request"]["body"]
    client = openai.OpenAI(base_url=base, api_key="none", max_retries=0)
    with vcr.VCR(record_mode="none").use_cassette(str(path)):
        for index, request in tape.requests():
            effect = tape.effects[index]
            assert isinstance(effect, ModelEffect)
            assert isinstance(effect.reply, ModelReply)
            said, calls = ask(client, request, stream=stream)
            assert said == (effect.reply.content or "")
            assert [call[2] for call in calls] == [c.arguments for c in effect.reply.tool_calls]


def test_changed_evidence_reaches_no_server(recorded: Path, tmp_path: Path) -> None:
    """A redirect to a server that is there: it is never asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_error(500)

        do_GET = do_POST

    shutil.copytree(recorded, tmp_path / "st")
    store = Store(tmp_path / "st")
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        task_id = read_run(store, "whole").samples[0].task_id
        change = with_fields(
            status=302, headers={"location": f"http://127.0.0.1:{server.server_port}/"}
        )
        change_evidence(store, "whole", task_id, 2, change)
        lines = [line for line, is_bad in prove(store, ["whole"]) if is_bad]
    finally:
        server.shutdown()
        server.server_close()
    assert len(lines) == 1
    assert lines[0].startswith(f"whole: sample {task_id!r}, epoch 1, step 2: reply: ")
    assert asked == []


# --------------------------------------------------------------------------------- odd endpoints


class NoSandbox:
    """Commands find nothing: only the model is of interest."""

    def run(self, command: str, timeout: float) -> BashReply:
        return BashReply(stdout=b"nothing here\n")

    def close(self) -> None:
        pass


class QuirkBackend:
    """The real model client against one odd endpoint."""

    image = None

    def __init__(self, url: str, name: str, stream: bool) -> None:
        self.tools: list[dict[str, Any]] = []
        self.model = Model(
            name, api_url=url, api_key=KEY, stream=stream, sleep=lambda seconds: None,
            wait_ceiling=400, retries=2,
        )  # fmt: skip

    def world(self, sample: Sample, attachment: Path | None) -> LiveWorld:
        return LiveWorld(self.model, NoSandbox(), None, [], lambda world: None)  # type: ignore[arg-type]

    def abort(self) -> None:
        pass

    def close(self) -> None:
        self.model.close()


@pytest.fixture(scope="module")
def quirk_server() -> Iterator[QuirkServer]:
    with QuirkServer() as server:
        yield server


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_evidence_of_every_odd_endpoint_gives_the_reply(
    quirk_server: QuirkServer, tmp_path: Path, stream: bool
) -> None:
    """Cut streams, 429s, dialects, overflows, refusals: one run for each, all of them proved."""
    quirk_server.forget()
    store = Store(tmp_path / "st")
    dataset(tmp_path / "data", [("a", 1, "a")])
    data = load(tmp_path / "data", id="invented")
    runs = {}
    for number, (name, quirk) in enumerate(QUIRKS.items()):
        script = quirk.stream if stream else quirk.whole
        if not script or any(answer.delay or answer.pause for answer in script):
            continue
        loop = Settings(model=name, max_steps=2)
        made = config(data, f"q{number}", loop=loop, secrets=(KEY,))
        settings: RunSettings = made.settings
        made.settings = msgspec.structs.replace(settings, stream=stream)
        take(store, made, QuirkBackend(quirk_server.url, name, stream))  # type: ignore[arg-type]
        runs[f"q{number}"] = name
    assert len(runs) > 50
    lines = list(prove(store))
    assert [(line, runs[line.split(":")[0]]) for line, is_bad in lines if is_bad] == []
    made_again = [line for line, _ in lines if " model replies made again" in line]
    assert len(made_again) > 50
    # what a secret came in with pieces of was withheld; everything else is proved
    assert sum("have no wire evidence" in line for line, _ in lines) <= 3, lines
