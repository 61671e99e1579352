"""What `ls` and `show` print: runs, and a sample's transcript. Nothing in it steers a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from harness import canonical
from harness.cassette import (
    BashEffect,
    Effect,
    End,
    Header,
    ModelEffect,
    Resumed,
    Tape,
    ToolEffect,
    read_cassette,
)
from harness.costs import Price, cost_of, money
from harness.dialogue import clean, cut
from harness.errors import DamageError, UsageError
from harness.recording import recorded_result
from harness.records import BashReply, ModelReply, Settings
from harness.report import RunReport, table
from harness.results import report_of
from harness.runfile import Entry, RunFile, imported_from, read_run, whole_id
from harness.store import Store
from harness.terminal import printable, printable_json
from harness.verdicts import notes_of
from harness.verifying import WireSize

SHOWN = 4_000
"""Characters of one text in a transcript; the middle is cut beyond that (`--raw` shows all)."""


def run_summary(store: Store, name: str, price: Price | None = None) -> dict[str, Any]:
    """One run in figures, from its run file alone; `price` among them if tokens have one."""
    run = read_run(store, name)
    cost = cost_of(run.samples).at(price)
    verdicts = [entry.verdict for entry in run.samples]
    right = verdicts.count("right")
    return {
        "run": name,
        "model": run.settings.loop.model,
        "dataset": run.dataset.id,
        "split": run.dataset.split,
        "samples": len(run.samples),
        "right": right,
        "error": verdicts.count("error"),
        "missing": verdicts.count("missing"),
        "mean_acc": right / len(verdicts) if verdicts and "unscored" not in verdicts else None,
        "steps": sum(entry.steps for entry in run.samples),
        **msgspec.to_builtins(cost),
        "marks": run.marks,
    }


def summary_lines(summaries: list[dict[str, Any]]) -> Iterator[str]:
    """A table of runs."""
    priced = any("price" in found for found in summaries)
    marked = any(found["marks"] for found in summaries)
    head = ("RUN", "MODEL", "DATASET", "SAMPLES", "SCORE", "ERRORS", "MISSING", "TOKENS")
    rows: list[tuple[str, ...]] = [
        (*head, *(["COST"] if priced else []), *(["NOTE"] if marked else []))
    ]
    for found in summaries:
        score = found["mean_acc"]
        rows.append(
            (
                printable(found["run"]),
                printable(found["model"]),
                printable(f"{found['dataset']}/{found['split']}"),
                str(found["samples"]),
                "n/a" if score is None else f"{score:.4g}",
                str(found["error"]),
                str(found["missing"]),
                str(found["input_tokens"] + found["output_tokens"]),
                *([money(found["price"])] if priced else []),
                *([printable("; ".join(map(_short, found["marks"])))] if marked else []),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
    if not summaries:
        yield "(no runs yet: harness record --run NAME …)"


def _short(mark: str) -> str:
    """The beginning of a mark, up to where it goes into detail."""
    text = mark.partition(";")[0].partition(":")[0]
    return text if len(text) <= 60 else text[:57] + "..."


def recorded_report(store: Store, name: str) -> RunReport:
    """A run's report as it was recorded."""
    run = read_run(store, name)
    results = [recorded_result(store, entry) for entry in run.samples]
    return report_of(run, results, notes_of(run, results), cost=cost_of(run.samples))


def run_lines(store: Store, name: str, price: Price | None = None) -> Iterator[str]:
    """Settings, results and samples of a run."""
    run = read_run(store, name)
    yield from _settings(run)
    yield f"  recorded live in {cost_of(run.samples).at(price)}"
    yield f"  {_wire(store, run)}"
    yield ""
    yield table(recorded_report(store, name))
    yield ""
    rows: list[tuple[str, ...]] = [
        ("TASK ID", "EPOCH", "LEVEL", "VERDICT", "STEPS", "TOKENS", "SECONDS", "CASSETTE")
    ]
    unlike = "imported" if imported_from(run) else "not replayable"
    rows += [_row(entry, unlike) for entry in run.samples]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()


def _wire(store: Store, run: RunFile) -> str:
    """How much wire evidence a run stands on; it is no part of the cassettes."""
    size = WireSize()
    try:
        for entry in run.samples:
            if entry.cassette is not None:
                what = f"the cassette of sample {entry.task_id!r}, epoch {entry.epoch}"
                size.add(store, read_cassette(store, entry.cassette, what))
    except DamageError:
        return f"wire evidence: damaged (harness verify {run.name})"
    return str(size)


def _row(entry: Entry, unlike: str) -> tuple[str, ...]:
    marks = "" if entry.replayable or entry.cassette is None else f" ({unlike})"
    return (
        printable(entry.task_id),
        str(entry.epoch),
        str(entry.level),
        entry.verdict + marks + (f" (drift {entry.drift})" if entry.drift else ""),
        str(entry.steps),
        str(entry.usage.input_tokens + entry.usage.output_tokens),
        f"{entry.seconds:.1f}",
        printable((entry.cassette or "-").removeprefix("sha256:")[:12]),
    )


def _settings(run: RunFile) -> Iterator[str]:
    source = imported_from(run)
    how = f"imported from {source} by" if source else "recorded by"
    yield printable(f"run {run.name}, {how} harness {run.harness}")
    image = run.environment.get("image") or {}
    values = {
        "data set": f"{run.dataset.id} {run.dataset.split} {run.dataset.digest}",
        "agent": f"{run.settings.agent} {run.settings.agent_source}".strip(),
        "image": f"{image.get('reference', 'none')} {image.get('id', '')}".strip(),
        **msgspec.to_builtins(run.settings.loop),
        **_other_settings(run),
    }
    if source:  # what that tool does not keep stands at its default here, and was not told
        kept = ("data set", "agent", "image")
        values = {k: v for k, v in values.items() if k in kept or v != _DEFAULTS.get(k)}
    for key, value in values.items():
        shown = value if isinstance(value, str) else canonical.dumps(value).decode()
        yield printable(f"  {key}: {shown}")
    for mark in run.marks:
        yield printable(f"  NOTE: {mark}")


_DEFAULTS = {**msgspec.to_builtins(Settings()), "stream": False}
_LIMITS = ("sample_seconds", "sample_tokens", "run_tokens")


def _other_settings(run: RunFile) -> dict[str, Any]:
    """What else governs a run, as far as it was set."""
    settings = run.settings
    limits = {name: getattr(settings, name) for name in _LIMITS}
    given = {key: value for key, value in settings.sandbox.items() if value is not None}
    return {
        "stream": settings.stream,
        **({"sandbox": given} if given else {}),
        **({"mcp": [server.get("name") for server in settings.mcp]} if settings.mcp else {}),
        **{name: value for name, value in limits.items() if value is not None},
    }


def entry_of(run: RunFile, task_id: str, epoch: int) -> Entry:
    """A run's sample by its id, or by an unambiguous beginning of it."""
    whole = whole_id(run, task_id)
    found = run.entry(whole, epoch)
    if found is None:
        raise UsageError(
            f"run {run.name!r} has no epoch {epoch} of sample {whole!r}",
            hint=f"harness show {run.name}",
        )
    return found


def transcript(
    store: Store, name: str, task_id: str, epoch: int, *, raw: bool = False
) -> Iterator[str]:
    """A sample's conversation, readable; or the lines of its cassette."""
    run = read_run(store, name)
    entry = entry_of(run, task_id, epoch)
    if entry.cassette is None:
        raise UsageError(f"sample {entry.task_id!r}, epoch {epoch}, is not recorded yet")
    epochs = sum(other.task_id == entry.task_id for other in run.samples)
    of = f" of {epochs}" if epochs > 1 else ""
    what = entry.what(name)
    if raw:
        text = store.get(entry.cassette, what).decode("utf-8", "backslashreplace")
        yield printable_json(text.rstrip("\n"))
        return
    tape = read_cassette(store, entry.cassette, what)
    yield printable(
        f"{entry.task_id} epoch {epoch}{of}, level {entry.level}: {entry.verdict}  {entry.cassette}"
    )
    step = 0
    for line in tape.lines:
        if isinstance(line, Header):
            if line.parent is not None:
                yield f"\n--- continued from {line.parent.cassette} ---"
            else:
                yield from _block("question", line.sample.question)
                if line.sample.file_name:
                    yield printable(f"  file: /shared_files/{line.sample.file_name}")
        elif isinstance(line, Resumed):
            drifts = f", {len(line.drift)} drifts" if line.drift else ""
            yield f"\n--- resumed{drifts} ---"
        elif isinstance(line, Effect):
            step += isinstance(line, ModelEffect)
            yield from _effect(tape, line, step)
        elif isinstance(line, End):
            yield from _end(line)


def _effect(tape: Tape, line: Effect, step: int) -> Iterator[str]:
    if line.failure is not None:
        told = f"{line.failure.kind}: {line.failure.message}{_attempts(line)}"
        yield from _block("failed", told)
    elif isinstance(line, ModelEffect) and isinstance(line.reply, ModelReply):
        reply = line.reply
        yield f"\n[step {step}] model{_attempts(line)}"
        for name, text in (
            ("reasoning", reply.reasoning),
            ("refusal", reply.refusal),
            ("error", reply.error),
            (None, reply.content),
        ):
            if text:
                yield from _indented(f"({name}) {text}" if name else text)
        for call in reply.tool_calls:
            yield from _indented(f"→ {call.name} {call.arguments}")
    elif isinstance(line, BashEffect):
        result: BashReply = tape.reply(line)
        end = "timed out" if result.timed_out else f"exit {result.exit_code}"
        yield from _indented(f"$ {line.request.command}")
        for stream in (result.stdout, result.stderr):
            if stream:
                yield from _indented(clean(stream.decode("utf-8", "replace")), "  | ")
        yield f"  [{end}]"
    elif isinstance(line, ToolEffect):
        yield from _indented(f"{line.request.server}.{line.request.name} {line.request.arguments}")
        yield from _indented(tape.reply(line).content, "  | ")


def _attempts(effect: Effect) -> str:
    """How often the endpoint was asked, and what came of it, where once was not enough."""
    tries = (effect.meta or {}).get("attempts")
    if not isinstance(tries, list) or len(tries) < 2:
        return ""
    ends = [t.get("status", t.get("error")) if isinstance(t, dict) else t for t in tries]
    return printable(f" ({len(tries)} attempts: {', '.join(map(str, ends))})")


def _end(line: End) -> Iterator[str]:
    told = "no answer" if line.answer is None else f"answer {line.answer}"
    if line.failure is not None:
        told = f"error: {line.failure.kind}: {line.failure.message}"
    yield from _block("end", told)
    totals = line.totals
    yield (
        f"  {totals.model} model turns, {totals.bash} commands, {totals.tool} tool calls, "
        f"{totals.input_tokens} + {totals.output_tokens} tokens"
    )
    if totals.maybe_paid:
        yield f"  {totals.maybe_paid} requests were in flight when a recording died; sent again"
    imported = (line.report or {}).get("imported")
    if isinstance(imported, dict):
        yield from _indented(f"imported from {imported.get('tool')}: {imported.get('verdict')}")
        for key, lead in (("missing", "not in it: "), ("notes", "")):
            found = imported.get(key)
            for text in found if isinstance(found, list) else ():
                yield from _indented(f"{lead}{text}")
    elif not line.replayable:
        yield "  NOT REPLAYABLE: the loop does not follow this cassette"


def _block(name: str, text: str) -> Iterator[str]:
    yield f"\n[{name}]"
    yield from _indented(text)


def _indented(text: str, lead: str = "  ") -> Iterator[str]:
    for line in printable(cut(text, SHOWN), keep="\n\t").rstrip("\n").split("\n"):
        yield lead + line
