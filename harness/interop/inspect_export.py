"""A run → an inspect log (`.eval`), for `inspect view`, `inspect score` and `read_eval_log`.

A zip archive of JSON: a header, each sample and epoch with its messages, events and score, and the
summaries that the viewer lists. A sample's `output.completion` is the submitted answer, which is
what inspect's scorers look at; without an answer it is empty. Targets are written only if they are
given. What inspect has no field for stands in the log's metadata.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import __version__
from harness.cassette import Tape, read_cassette
from harness.errors import LackError, UsageError
from harness.interop.inspect_transcript import NO_TIME, Transcript, identifier, tokens
from harness.records import Outcome, Usage, Verdict
from harness.report import verdict_for
from harness.runfile import Entry, RunFile
from harness.store import Store

VERSION = 2
"""Of inspect's log format."""
SCORER = "gaia"
NO_PROVIDER = "none/"
"""inspect makes a client for a log's model before it scores; this one needs no key, asks nobody."""


def write_log(
    store: Store, run: RunFile, output: str, *, truths: Mapping[str, str] | None = None
) -> int:
    """Write the run's log; how many samples it holds. Damage stops it, and leaves nothing behind.

    With `truths`, they are the samples' targets, and verdicts that are not `error` are computed
    from them; else targets are empty and verdicts the recorded ones.
    """
    target = Path(output)
    if output == "-" or target.is_dir():
        raise UsageError("an inspect log is a file: -o NAME.eval")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            count = _Log(store, run, truths or {}).write(archive)
        os.replace(temporary, target)
    except OSError as error:
        raise LackError(f"{output} cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _add(archive: zipfile.ZipFile, name: str, value: Any) -> None:
    info = zipfile.ZipInfo(name)  # of 1980: the same run gives the same bytes
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, json.dumps(value, allow_nan=False))


class _Log:
    """One run on its way into an archive."""

    def __init__(self, store: Store, run: RunFile, truths: Mapping[str, str]) -> None:
        self.store, self.run, self.truths = store, run, truths
        self.model = run.settings.loop.model or "unknown"
        self.usage = Usage()
        self.summaries: list[dict[str, Any]] = []
        self.scored: list[dict[str, Any]] = []
        self.verdicts: list[Verdict] = []
        self.times: list[str] = []

    def write(self, archive: zipfile.ZipFile) -> int:
        """Samples first: the header holds figures over them."""
        for entry in self.run.samples:
            if entry.cassette is not None:
                what = f"the cassette of sample {entry.task_id!r}, epoch {entry.epoch}"
                tape = read_cassette(
                    self.store, entry.cassette, f"{what}, in run {self.run.name!r}"
                )
                sample = self._sample(entry, tape)
                name = f"samples/{entry.task_id.replace('/', '_')}_epoch_{entry.epoch}.json"
                _add(archive, name, sample)
                self._summarize(entry, sample)
            else:
                self.verdicts.append("missing")
        spec = self._spec()
        plan = {"name": "plan", "steps": [{"solver": self.run.settings.agent, "params": {}}]}
        start = {"version": VERSION, "eval": spec, "plan": plan}
        _add(archive, "_journal/start.json", start)
        _add(archive, "_journal/summaries/1.json", self.summaries)
        _add(archive, "summaries.json", self.summaries)
        results = self._results()
        if results is not None:
            _add(archive, "reductions.json", [{"scorer": SCORER, "samples": self.scored}])
        whole = all(entry.status != "missing" for entry in self.run.samples)
        header = {
            **start,
            "status": "success" if whole else "started",
            "results": results,
            "stats": {
                "started_at": min(self.times, default=""),
                "completed_at": max(self.times, default=""),
                "model_usage": {self.model: tokens(self.usage)},
            },
        }
        _add(archive, "header.json", header)
        return len(self.summaries)

    def _spec(self) -> dict[str, Any]:
        run = self.run
        ids = list(dict.fromkeys(entry.task_id for entry in run.samples))
        return {
            "eval_id": identifier(run.name, "eval"),
            "run_id": identifier(run.name, "run"),
            "created": min(self.times, default=NO_TIME),
            "task": "gaia",
            "task_id": identifier(run.name, "task"),
            "task_version": 0,
            "dataset": {
                "name": run.dataset.id,
                "samples": len(ids),
                "sample_ids": ids,
                "shuffled": run.selection.shuffle_seed is not None,
            },
            "model": f"{NO_PROVIDER}{self.model}",
            "config": {"epochs": max((entry.epoch for entry in run.samples), default=1)},
            "packages": {"gaia-harness": run.harness},
            "scorers": [{"name": SCORER, "options": {}, "metrics": [], "metadata": {}}],
            "metadata": {
                "exported_by": f"gaia-harness {__version__}",
                "run": run.name,
                "dataset": {"split": run.dataset.split, "digest": run.dataset.digest},
                "marks": list(run.marks),
                "targets": "of the data set given" if self.truths else "not in this log",
                "verdicts": {name: self.verdicts.count(name) for name in set(self.verdicts)},
            },
        }

    def _results(self) -> dict[str, Any] | None:
        """Figures; `accuracy` as inspect has it, over what was scored, `mean_acc` over all."""
        if not self.scored or "unscored" in self.verdicts:
            return None
        right, count = self.verdicts.count("right"), len(self.scored)
        figures = {"accuracy": right / count, "mean_acc": right / len(self.verdicts)}
        return {
            "total_samples": len(self.verdicts),
            "completed_samples": count,
            "scores": [
                {
                    "name": SCORER,
                    "scorer": SCORER,
                    "scored_samples": count,
                    "unscored_samples": len(self.summaries) - count,
                    "params": {},
                    "metrics": {
                        name: {"name": name, "value": value, "params": {}}
                        for name, value in figures.items()
                    },
                }
            ],
        }

    # --------------------------------------------------------------------------------- the samples

    def _sample(self, entry: Entry, tape: Tape) -> dict[str, Any]:
        sample, end = tape.header.sample, tape.end
        assert end is not None
        truth = self.truths.get(entry.task_id)
        verdict = entry.verdict
        if truth is not None:
            verdict = verdict_for(end.status, end.answer, end.last_error, truth)
        self.verdicts.append(verdict)
        talk = Transcript(entry, tape, self.model)
        self.times += [time for time in talk.times if time]
        self.usage += entry.usage
        found: dict[str, Any] = {
            "id": entry.task_id,
            "epoch": entry.epoch,
            "input": sample.question,
            "target": truth or "",
            "files": [f"/shared_files/{sample.file_name}"] if sample.file_name else None,
            "messages": talk.messages,
            "output": talk.output(end.answer),
            "scores": None,
            "metadata": {
                "level": str(entry.level),
                "file_name": sample.file_name,
                "verdict": verdict,
                "cassette": entry.cassette,
            },
            "events": talk.events,
            "events_data": {"messages": talk.pool, "calls": []},
            "model_usage": {self.model: tokens(entry.usage)},
            "started_at": talk.times[0] if talk.times else None,
            "total_time": entry.seconds,
            "working_time": entry.seconds,
            "uuid": identifier(self.run.name, entry.task_id, entry.epoch),
            "turn_count": entry.steps,
        }
        most = self.run.settings.loop.max_steps
        if end.outcome == Outcome(status="ok") and end.last_error is None and entry.steps >= most:
            found["limit"] = {"type": "custom", "limit": most, "reason": "model turns"}
        if end.failure is not None:
            told = f"{end.failure.kind}: {end.failure.message}"
            found["error"] = {"message": told, "traceback": "", "traceback_ansi": ""}
        elif verdict != "unscored":
            score = {
                "value": "C" if verdict == "right" else "I",
                "answer": end.answer or "",
                "explanation": verdict,
            }
            found["scores"] = {SCORER: score}
        return found

    def _summarize(self, entry: Entry, sample: dict[str, Any]) -> None:
        names = ("id", "epoch", "input", "target", "scores", "model_usage", "started_at",
                 "total_time", "working_time", "uuid", "turn_count", "metadata")  # fmt: skip
        summary = {name: sample[name] for name in names}
        error = sample.get("error")
        self.summaries.append(
            {
                **summary,
                "error": error["message"] if error else None,
                "completed": True,
                "message_count": len(sample["messages"]),
            }
        )
        if sample["scores"]:
            score = sample["scores"][SCORER]
            value = 1.0 if score["value"] == "C" else 0.0
            self.scored.append({**score, "value": value, "sample_id": entry.task_id})
