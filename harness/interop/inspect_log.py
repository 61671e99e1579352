"""inspect's log → a run.

An `.eval` file is a zip archive: `header.json` (or, while a log is being written and after a crash,
only `_journal/start.json`), and `samples/<id>_epoch_<n>.json`. A `.json` log holds the same in one
object. Texts may stand in a sample's `attachments`, referred to as `attachment://<hash>`. Read for
the formats: inspect_ai 0.3.285, log version 2, and what it says of older ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from harness.dataset import UNKNOWN, Dataset
from harness.errors import DataError
from harness.interop.archive import Archive
from harness.interop.conversation import (
    ARGUMENTS,
    Message,
    Talk,
    by_question,
    ended,
    failed,
    question_of,
)
from harness.interop.imported import ImportedSample, ImportReport, Source
from harness.interop.importing import write_import
from harness.interop.inspect_events import Event, Events, Output, Tokens
from harness.interop.reading import MAX_RECORD, NOTHING, decode, plain, read_file
from harness.records import Outcome, Sample, Settings, Usage, Verdict
from harness.runfile import RunSettings, Selection
from harness.store import Store

MAX_LOG = 256 << 20
"""Bytes of a log that is one JSON text."""
MISSING = (
    "exact requests",
    ARGUMENTS,
    "raw outputs (both streams came as one text)",
    "exit codes, where no sandbox event tells them",
)
_ATTACHMENT = re.compile(r"(?:attachment|tc)://([0-9a-f]{32})")
_SAMPLE = re.compile(r"samples/.+\.json")
_MODEL_TROUBLE = re.compile(
    r"api|rate.?limit|openai|anthropic|google|connect|timeout|status.?code|unauthorized", re.I
)
_SANDBOX_TROUBLE = re.compile(r"sandbox|docker|container|compose|k8s|image", re.I)
_PARAMS = ("temperature", "top_p", "top_k", "max_tokens", "seed", "parallel_tool_calls")


class _Config(msgspec.Struct):
    epochs: int | None = None
    message_limit: int | None = None


class _Data(msgspec.Struct):
    name: str | None = None
    sample_ids: list[str | int] | None = None
    samples: int | None = None


class _Spec(msgspec.Struct):
    model: str
    task: str = ""
    created: str = ""
    dataset: _Data = msgspec.field(default_factory=_Data)
    config: _Config = msgspec.field(default_factory=_Config)
    packages: dict[str, str] = {}
    model_generate_config: msgspec.Raw = NOTHING
    sandbox: msgspec.Raw = NOTHING


class _Metric(msgspec.Struct):
    value: float | int | None = None


class _EvalScore(msgspec.Struct):
    name: str = ""
    metrics: dict[str, _Metric] = {}
    scored_samples: int | None = None


class _Results(msgspec.Struct):
    scores: list[_EvalScore] = []
    completed_samples: int | None = None


class _Step(msgspec.Struct):
    params: msgspec.Raw = NOTHING


class _Plan(msgspec.Struct):
    steps: list[_Step] = []


class _Log(msgspec.Struct):
    eval: _Spec
    plan: _Plan | None = None
    version: int = 1
    status: str = "started"
    results: _Results | None = None
    samples: list[msgspec.Raw] | None = None


class _Score(msgspec.Struct):
    value: msgspec.Raw = NOTHING
    answer: str | None = None


class _EvalError(msgspec.Struct):
    message: str = ""


class _Limit(msgspec.Struct):
    type: str = ""


class _Sample(msgspec.Struct):
    id: str | int
    epoch: int = 1
    input: str | list[Message] = ""
    target: str | list[str] = ""
    messages: list[Message] = []
    output: Output | None = None
    scores: dict[str, _Score] | None = None
    metadata: dict[str, msgspec.Raw] | None = None
    files: list[str] | None = None
    events: list[Event] = []
    model_usage: dict[str, Tokens] = {}
    total_time: float | None = None
    started_at: str | None = None
    completed_at: str | None = None
    error: _EvalError | None = None
    error_retries: list[msgspec.Raw] | None = None
    attachments: dict[str, str] = {}
    limit: _Limit | None = None


def import_run(
    store: Store, path: str, name: str, *, dataset: Dataset | None = None, split: str = "validation"
) -> ImportReport:
    """Import an inspect log (`.eval` or `.json`) as a new run."""
    reader = _Reader(Path(path), dataset)
    try:
        return reader.write(store, name, split)
    finally:
        reader.close()


class _Reader:
    """One log."""

    def __init__(self, path: Path, dataset: Dataset | None) -> None:
        self.path, self.dataset = path, dataset
        self.archive: Archive | None = None
        self.model = ""
        self._ids: dict[str, str] = {}
        self.warnings: list[str] = []
        if path.is_dir():
            raise DataError(f"{path} is a folder", hint="name one log file: .eval or .json")
        if path.suffix == ".json":
            self.log = decode(read_file(path, MAX_LOG), _Log, str(path), limit=MAX_LOG)
        else:
            self.archive = Archive(path)
            try:
                self.log = self._header(self.archive)
            except BaseException:
                self.close()
                raise
        if self.log.version not in (1, 2):
            self.close()
            version = self.log.version
            raise DataError(f"{path} is an inspect log of version {version}; 1 and 2 are read")

    def close(self) -> None:
        """Let go of the file."""
        if self.archive is not None:
            self.archive.close()

    def _header(self, archive: Archive) -> _Log:
        """The log's head; that of a log that was never finished is in its journal."""
        for name in ("header.json", "_journal/start.json"):
            if name in archive.names:
                return decode(archive.read(name), _Log, f"{self.path}, member {name!r}")
        raise DataError(f"{self.path} is no inspect log: it has neither a header nor a journal")

    # ------------------------------------------------------------------------------------- the run

    def write(self, store: Store, name: str, split: str) -> ImportReport:
        """Read all of it, then write it."""
        spec, where = self.log.eval, f"{self.path}, eval"
        self.model = spec.model.removeprefix("none/")  # a provider of logs that ours exports
        generate = plain(spec.model_generate_config, where)
        self.params = {
            key: generate[key]
            for key in _PARAMS
            if isinstance(generate, dict) and isinstance(generate.get(key), int | float | bool)
        }
        if self.log.status != "success":
            self.warnings.append(f"the log says of itself that it is {self.log.status[:40]!r}")
        self._submit = _submit_name(self.log.plan, where)
        sandbox = plain(spec.sandbox, where)
        kind = sandbox.get("type") if isinstance(sandbox, dict) else None
        return write_import(
            store,
            name,
            source=self._source(),
            settings=RunSettings(
                loop=Settings(model=self.model, params=self.params),
                agent="inspect:solver",
                sandbox={"kind": kind} if isinstance(kind, str) else {},
            ),
            samples=self._samples(),
            dataset=self.dataset,
            dataset_id=spec.dataset.name or spec.task or "inspect",
            split=split,
            selection=Selection(),
            expected=self._expected,
            epochs=self._epochs(),
            warnings=self.warnings,
        )

    def _epochs(self) -> int:
        epochs = self.log.eval.config.epochs or 1
        if not 0 < epochs <= 1000:
            raise DataError(f"{self.path} says that it has {epochs} epochs")
        return epochs

    def _expected(self) -> list[tuple[str, int]]:
        ids = self.log.eval.dataset.sample_ids or []
        if len(ids) > 100_000:
            raise DataError(f"{self.path} says that it has {len(ids)} samples")
        return [(self._ids.get(str(id), str(id)), 0) for id in ids]

    def _source(self) -> Source:
        spec, results = self.log.eval, self.log.results or _Results()
        name = _counting([score.name for score in results.scores])
        score = next((score for score in results.scores if score.name == name), _EvalScore())
        metric = score.metrics.get("accuracy", score.metrics.get("mean", _Metric()))
        return Source(
            tool="inspect",
            version=spec.packages.get("inspect_ai", ""),
            agent="inspect:solver",
            missing=MISSING,
            mean_acc=None if metric.value is None else float(metric.value),
            num=score.scored_samples or results.completed_samples,
            details={"status": self.log.status, "created": spec.created},
        )

    # --------------------------------------------------------------------------------- the samples

    def _samples(self) -> Iterator[ImportedSample]:
        if self.archive is None:
            for number, raw in enumerate(self.log.samples or []):
                what = f"{self.path}, samples[{number}]"
                if memoryview(raw).nbytes > MAX_RECORD:
                    raise DataError(f"{what} is larger than {MAX_RECORD >> 20} MiB; it is not read")
                yield self._sample(decode(raw, _Sample, what), what)
            return
        for name in self.archive.names:
            if _SAMPLE.fullmatch(name):
                what = f"{self.path}, member {name[:200]!r}"
                yield self._sample(decode(self.archive.read(name), _Sample, what), what)

    def _sample(self, found: _Sample, what: str) -> ImportedSample:
        texts, lost = found.attachments, set[str]()

        def resolve(text: str) -> str:
            if "://" not in text:
                return text

            def look_up(match: re.Match[str]) -> str:
                if match[1] not in texts:
                    lost.add("texts kept as attachments that are not there")
                return texts.get(match[1], match[0])

            # such a reference is the whole text
            match = _ATTACHMENT.fullmatch(text)
            return look_up(match) if match else text

        events = Events(found.events, found.messages, found.output, what)
        talk = Talk(
            events.messages,
            what=what,
            model=self.model,
            tools=events.tools,
            params=self.params,
            server="inspect",
            submit=self._submit,
            turn=events.turn,
            bash=events.bash,
            resolve=resolve,
        )
        sample = self._identity(found, resolve, what)
        self._ids[str(found.id)] = sample.task_id
        scorer, score = _score(found)
        verdict, told = _verdict(scorer, score, what)
        outcome, last_error, notes = _outcome(found, talk, score, resolve)
        if found.error_retries:
            notes.append(f"inspect tried it {len(found.error_retries) + 1} times; this is the last")
        if events.others > 0:
            notes.append(f"{events.others} model calls stand outside of the conversation")
        target = found.target
        if isinstance(target, list):
            target = target[0] if len(target) == 1 else ""
        if target.strip() == UNKNOWN:
            target, verdict = "", None
        usages = [usage.ours for usage in found.model_usage.values()]
        missing = (talk.missing - set(MISSING)) | lost
        if not events.tools:
            missing.add("tool schemas")
        return ImportedSample(
            sample=sample,
            effects=talk.effects,
            outcome=outcome,
            last_error=last_error,
            verdict=verdict,
            told=told,
            truth=target or None,
            usage=sum(usages, Usage()) if usages else None,
            seconds=_seconds(found),
            missing=sorted(missing),
            notes=notes,
        )

    def _identity(self, found: _Sample, resolve: Callable[[str], str], what: str) -> Sample:
        kept = found.metadata or {}
        wanted = ("task_id", "level", "Level", "file_name")
        metadata = {name: plain(kept[name], what) for name in wanted if name in kept}
        told = metadata.get("task_id")
        task_id = told if isinstance(told, str) and told else str(found.id)
        if not task_id:
            raise DataError(f"{what}: the sample has no id")
        if not 0 < found.epoch <= 1000:
            raise DataError(f"{what}: epoch {found.epoch} is none")
        level = str(metadata.get("level", metadata.get("Level"))).removesuffix(".0")
        text = found.input
        if isinstance(text, list):
            asked = [m.content for m in text if m.role == "user"]
            text = "\n".join(content for content in asked if isinstance(content, str))
        question = question_of(resolve(text))
        if self.dataset is not None and not any(
            item.sample.task_id == task_id for item in self.dataset.items
        ):
            task_id = by_question(self.dataset, resolve(text)) or task_id
        name = metadata.get("file_name")
        files = [file.rpartition("/")[2] for file in found.files or ()]
        if not isinstance(name, str):
            name = files[0] if len(files) == 1 else ""
        return Sample(
            task_id=task_id,
            question=question,
            level=int(level) if level in ("1", "2", "3") else 0,
            file_name=name,
            epoch=found.epoch,
        )


def _score(found: _Sample) -> tuple[str, _Score | None]:
    """The score that counts: of a scorer for GAIA, else of the first."""
    scores = found.scores or {}
    name = _counting(scores)
    return name, scores.get(name)


def _counting(scorers: Iterable[str]) -> str:
    """Which of some scorers counts; empty for none of none."""
    names = list(scorers)
    return next((name for name in names if "gaia" in name.lower()), names[0] if names else "")


def _submit_name(plan: _Plan | None, what: str) -> str:
    """What the agent's submit tool is called: `react` and `basic_agent` take another name."""
    for step in plan.steps if plan else ():
        params = plain(step.params, what)
        params = params if isinstance(params, dict) else {}
        told = params.get("submit")  # a tuple or an object, whose first field is the name
        told = told[0] if isinstance(told, list) and told else told
        told = told.get("name") if isinstance(told, dict) else told
        for name in (params.get("submit_name"), told):
            if isinstance(name, str) and name:
                return name
    return "submit"


def _verdict(scorer: str, score: _Score | None, what: str) -> tuple[Verdict | None, str]:
    """The log's own verdict, and how it words it."""
    value = plain(score.value, what) if score is not None else None
    if value in ("C", "I", "P", "N"):
        return ("right" if value == "C" else "wrong"), f"{scorer} {value}"
    if isinstance(value, int | float):
        return ("right" if value == 1 else "wrong"), f"{scorer} {value:g}"
    return None, ""


def _outcome(
    found: _Sample, talk: Talk, score: _Score | None, resolve: Callable[[str], str]
) -> tuple[Outcome, str | None, list[str]]:
    """How the sample ended, why there is no answer, and what was decided about that."""
    if found.error is not None:
        message = resolve(found.error.message)
        kind = "model" if _MODEL_TROUBLE.search(message) else "agent"
        return failed("sandbox" if _SANDBOX_TROUBLE.search(message) else kind, message), None, []
    if found.output is not None and found.output.error:
        return failed("model", resolve(found.output.error)), None, []
    answer = score.answer if score is not None else None
    if answer is None and found.output is not None:
        answer = found.output.completion
    return ended(
        talk,
        None if answer is None else resolve(answer),
        stopped=found.limit is not None,
        tool="inspect",
    )


def _seconds(found: _Sample) -> float:
    if found.total_time is not None:
        return min(max(found.total_time, 0.0), 1e9)
    try:
        start, end = (
            datetime.fromisoformat(text or "") for text in (found.started_at, found.completed_at)
        )
        return min(max((end - start).total_seconds(), 0.0), 1e9)
    except (TypeError, ValueError, OverflowError):
        return 0.0
