"""`harness export --format vcr`: one vcrpy cassette per sample and epoch.

Request bodies are made again from the tape, responses are the wire evidence. What is written is
what gave each reply: plain vcrpy and pytest-recording replay it in order, with record mode `none`,
through any client. No header but the content types and what the evidence holds; no key.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from http.client import responses
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from harness.cassette import ModelEffect, RecordedRequest, Tape, read_cassette
from harness.errors import DamageError, LackError, UsageError
from harness.interop.evidence import Evidence, Sent, evidence_of, sent_as, spellings
from harness.interop.synthetic import Response, synthesise
from harness.live import wire
from harness.live.model import OPENAI_URL
from harness.runfile import RunFile
from harness.store import Store, sample_key


class Exported(msgspec.Struct):
    """What was written, and what was not."""

    files: int = 0
    interactions: int = 0
    synthesised: int = 0
    """Responses made from the recorded reply, for want of wire evidence."""
    left_out: int = 0
    """Exchanges of attempts that gave no reply."""
    missing: int = 0
    """Samples that are not recorded."""

    def notes(self) -> Iterator[str]:
        """What a user has to know of it, a line each."""
        if self.synthesised:
            yield (
                f"{self.synthesised} of {self.interactions} responses are synthesised from the "
                "recorded replies: they have no wire evidence"
            )
        if self.left_out:
            yield f"{self.left_out} exchanges of failed attempts are left out"
        if self.missing:
            yield f"{self.missing} samples are not recorded and have no file"


def export(store: Store, run: RunFile, output: str) -> Exported:
    """Write the cassettes of a run into a folder: all of them, or, on any error, none.

    A folder that exists keeps what else is in it. Raises UsageError for a path that is no folder,
    LackError without vcrpy or room, DamageError where evidence and tape do not belong together.
    """
    try:
        import vcr
    except ImportError:
        raise LackError(
            "the package vcrpy is missing, and its format is written by it",
            hint="pip install 'gaia-harness[vcr]'",
        ) from None
    del vcr
    target = Path(output)
    if output == "-" or (target.exists() and not target.is_dir()):
        raise UsageError(f"{output} is no folder: vcr writes one file per sample")
    done = Exported()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            for entry in run.samples:
                if entry.cassette is None:
                    done.missing += 1
                    continue
                where = f"sample {entry.task_id!r}, epoch {entry.epoch}"
                tape = read_cassette(
                    store, entry.cassette, f"the cassette of {where}, in run {run.name!r}"
                )
                text = _cassette(store, tape, run, done)
                name = f"{sample_key(entry.task_id, entry.epoch)}.yaml"
                (beside / name).write_text(text, encoding="utf-8", newline="\n")
                done.files += 1
            target.mkdir(exist_ok=True)
            for path in sorted(beside.iterdir()):
                os.replace(path, target / path.name)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise LackError(f"{output} cannot be written: {error.strerror or error}") from error
    return done


def _cassette(store: Store, tape: Tape, run: RunFile, done: Exported) -> str:
    """One sample's cassette, as vcrpy serialises it."""
    from vcr.request import Request
    from vcr.serialize import serialize
    from vcr.serializers import yamlserializer

    uri, headers = address(run), {"accept": "application/json", "content-type": "application/json"}
    requests, answers = [], []
    for step, (index, recorded) in enumerate(tape.requests(), 1):
        effect = tape.effects[index]
        assert isinstance(effect, ModelEffect)
        what = f"step {step} of {tape.what}"
        evidence = evidence_of(store, effect, what)
        sent, response = _interaction(effect, recorded, run.settings.stream, evidence, what)
        done.left_out += len(evidence.exchanges) - (evidence.final is not None)
        if sent is None or response is None:
            continue
        done.interactions += 1
        done.synthesised += evidence.final is None
        requests.append(Request("POST", uri, sent.data, headers))
        answers.append(_as_vcr(response))
    text: str = serialize({"requests": requests, "responses": answers}, yamlserializer)
    return text


def _interaction(
    effect: ModelEffect, recorded: RecordedRequest, stream: bool, evidence: Evidence, what: str
) -> tuple[Sent | None, Response | None]:
    """The body that was sent and the response that the effect ended with; None for neither."""
    final = evidence.final
    if final is not None:
        sent = sent_as(recorded, stream, final.request_sha256)
        if sent is None:
            raise DamageError(
                f"{what}: the request on the tape is not the one that was sent",
                hint="harness verify --wire",
            )
        assert final.status is not None
        return sent, Response(final.status, wire.kept_headers(final.headers), final.body)
    if effect.reply is None:
        return None, None  # the connection was lost, or nothing is known of it
    sent = next(spellings(recorded, stream), None)
    if sent is None:
        raise DamageError(f"{what}: the request on the tape cannot be written as JSON")
    meta: dict[str, Any] = effect.meta or {}
    created = meta.get("created")
    return sent, synthesise(
        effect.reply,
        id=str(meta.get("response_id") or f"chatcmpl-{effect.digest[:24]}"),
        model=str(meta.get("model") or recorded.model),
        created=created if isinstance(created, int) else 0,
        stream=sent.stream,
    )


def _as_vcr(response: Response) -> dict[str, Any]:
    return {
        "status": {"code": response.status, "message": responses.get(response.status, "")},
        "headers": {name: [value] for name, value in response.headers.items()},
        "body": {"string": response.body},
    }


def address(run: RunFile) -> str:
    """Where the run's requests went, as a client with its base URL asks it."""
    base = run.settings.transport.get("api_url") or OPENAI_URL
    try:
        parts = urlsplit(base)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # something was cut out of it
        usable = False
    return f"{(base if usable else OPENAI_URL).rstrip('/')}/chat/completions"
