"""EvalScope's output folder → a run.

    configs/task_config*.yaml            what was asked for
    predictions/<model>/gaia_<subset>.jsonl   a line per sample: messages, trace, output
    reviews/<model>/gaia_<subset>.jsonl       a line per sample: score, target
    reports/<model>/gaia.json            its figures

A line's `index` is the sample's row among those of its subset, times the repeats; the task id
stands in its metadata. Read for the formats: EvalScope 1.14.1, and what it says of older ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from harness.dataset import UNKNOWN, Dataset
from harness.errors import DataError, UsageError
from harness.interop.conversation import (
    ARGUMENTS,
    Message,
    Perf,
    Talk,
    ToolError,
    Turn,
    by_question,
    ended,
    failed,
    question_of,
)
from harness.interop.importing import (
    MAX_MISSING,
    ImportedSample,
    ImportReport,
    Source,
    write_import,
)
from harness.interop.reading import NOTHING, decode, lines, plain, read_file
from harness.interop.settings_yaml import read_settings
from harness.records import BashReply, Outcome, Sample, Settings, Usage, Verdict
from harness.runfile import RunSettings, Selection
from harness.store import Store

MISSING = (
    "exact requests",
    ARGUMENTS,
    "tool schemas",
    "raw outputs (both streams came as one text)",
    "exit codes other than those worded in an output",
)

_FILE = re.compile(r"gaia_(.+)\.jsonl")
_LEVEL = re.compile(r"2023_level([123])")
_EXIT = re.compile(r"(?:^|\n)\[exit (-?\d{1,9})\]\Z")
_PARAMS = ("temperature", "top_p", "top_k", "max_tokens", "seed", "parallel_tool_calls", "n")
_MAX_LISTED = 10_000  # files of a folder


class _Event(msgspec.Struct):
    type: str = ""
    timestamp: float | None = None
    message_id: str | None = None
    latency_ms: float | None = None
    payload: msgspec.Raw = NOTHING


class _Trace(msgspec.Struct):
    strategy: str | None = None
    max_steps: int | None = None
    events: list[_Event] = []
    total_usage: Perf | None = None


class _Choice(msgspec.Struct):
    message: Message | None = None
    stop_reason: str | None = None


class _Output(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Perf | None = None
    error: str | None = None


class _Metadata(msgspec.Struct):
    task_id: str | None = None
    level: str | int | float | None = None
    file_name: str | None = None


class _Prediction(msgspec.Struct):
    index: int
    messages: list[Message] = []
    model_output: _Output | None = None
    agent_trace: _Trace | None = None
    metadata: _Metadata | None = None


class _Score(msgspec.Struct):
    value: dict[str, msgspec.Raw] = {}
    status: str | None = None
    extracted_prediction: str | None = None
    prediction: str | None = None


class _SampleScore(msgspec.Struct):
    score: _Score
    generation_index: int | None = None
    sample_metadata: _Metadata | None = None


class _Review(msgspec.Struct):
    index: int
    sample_score: _SampleScore
    target: str | list[str] | None = None


class _Reviewed(NamedTuple):
    """What is kept of a review; its messages are those of the prediction."""

    verdict: Verdict | None
    told: str
    answer: str | None
    target: str | None
    generation: int | None
    metadata: _Metadata | None


class _Count(msgspec.Struct):
    requested: int = 0
    errored: int = 0


class _Summary(msgspec.Struct):
    subsets: dict[str, _Count] = {}


class _Metric(msgspec.Struct):
    score: float | None = None
    num: int | None = None


class _Report(msgspec.Struct):
    metrics: list[_Metric] = []
    score: float | None = None
    num: int | None = None
    execution_summary: _Summary | None = None


def import_run(
    store: Store, path: str, name: str, *, dataset: Dataset | None = None, split: str = "validation"
) -> ImportReport:
    """Import a folder that EvalScope wrote, or its `predictions/<model>`, as a new run."""
    return _Folder(Path(path), dataset).write(store, name, split)


class _Folder:
    """One model's results over GAIA in an output folder."""

    def __init__(self, path: Path, dataset: Dataset | None) -> None:
        self.root, self.model = _locate(path)
        self.dataset = dataset
        self.files = {
            match[1]: file
            for file in _listing(self.root / "predictions" / self.model)
            if (match := _FILE.fullmatch(file.name))
        }
        if not self.files:
            raise DataError(
                f"{self.root / 'predictions' / self.model} has no gaia_<subset>.jsonl",
                hint="name the folder that holds EvalScope's configs, predictions and reviews",
            )
        self.config = self._config()
        self.report = self._report()
        self.repeats = max(1, _whole(self.config.get("repeats")) or 1)
        self.warnings: list[str] = []
        self.seen: dict[str, set[int]] = {}
        """The indexes that were found, by subset."""
        self._epochs: dict[str, int] = {}

    def _config(self) -> dict[str, Any]:
        files = [f for f in _listing(self.root / "configs") if f.name.startswith("task_config")]
        return read_settings(files[-1]) if files else {}

    def _report(self) -> _Report:
        path = self.root / "reports" / self.model / "gaia.json"
        return decode(read_file(path), _Report, str(path)) if path.exists() else _Report()

    # ------------------------------------------------------------------------------------- the run

    def write(self, store: Store, name: str, split: str) -> ImportReport:
        """Read all of it, then write it."""
        agent = self.config.get("agent_config")
        agent = agent if isinstance(agent, dict) else {}
        generation = self.config.get("generation_config")
        generation = generation if isinstance(generation, dict) else {}
        self.params = {
            key: generation[key]
            for key in _PARAMS
            if isinstance(generation.get(key), int | float | bool)
        }
        timeout = agent.get("command_timeout")
        self.timeout = float(timeout) if isinstance(timeout, int | float) and timeout > 0 else 60.0
        model = self.config.get("model")
        self.model_name = model if isinstance(model, str) and model else self.model
        settings = RunSettings(
            loop=Settings(
                model=self.model_name,
                params=self.params,
                max_steps=_whole(agent.get("max_steps")) or 50,
                command_timeout=self.timeout,
            ),
            agent="evalscope:react",
            stream=generation.get("stream") is True,
            sandbox=self._sandbox(),
        )
        found = list(self._reviews_of_all())
        self.reviews = dict(found)
        limit = _whole(self.config.get("limit"))
        return write_import(
            store,
            name,
            source=self._source(),
            settings=settings,
            samples=self._samples(),
            dataset=self.dataset,
            dataset_id=self._dataset_id(),
            split=split,
            selection=Selection(
                subsets=[name for name in sorted(self.files) if _LEVEL.fullmatch(name)],
                limit=limit if limit and limit > 0 else None,
            ),
            expected=self._expected,
            warnings=self.warnings,
            epochs=self.repeats,
        )

    def _source(self) -> Source:
        version = self.config.get("evalscope_version")
        report = self.report
        figure = report.metrics[0] if report.metrics else _Metric(report.score, report.num)
        return Source(
            tool="EvalScope",
            version=version if isinstance(version, str) else "",
            agent="evalscope:react",
            missing=MISSING,
            mean_acc=figure.score,
            num=report.num if report.num is not None else figure.num,
        )

    def _sandbox(self) -> dict[str, Any]:
        sandbox = self.config.get("sandbox")
        default = sandbox.get("default_config") if isinstance(sandbox, dict) else None
        image = default.get("image") if isinstance(default, dict) else None
        return {"kind": "docker", "image": image} if isinstance(image, str) else {}

    def _dataset_id(self) -> str:
        """The data set as EvalScope was told it; a folder's path is not kept."""
        args = self.config.get("dataset_args")
        gaia = args.get("gaia") if isinstance(args, dict) else None
        id = gaia.get("dataset_id") if isinstance(gaia, dict) else None
        if not isinstance(id, str) or not id:
            return "gaia-benchmark/GAIA"
        return id.rstrip("/\\").replace("\\", "/").rpartition("/")[2] if id[:1] in "/.~" else id

    def _expected(self) -> list[tuple[str, int]]:
        """What was asked for and did not come, once all was read: by task id where that is known,
        else by its row."""
        counts = self.report.execution_summary.subsets if self.report.execution_summary else {}
        found: list[tuple[str, int]] = []
        for subset, count in counts.items():
            rows = range(min(count.requested, 2 * MAX_MISSING) // self.repeats)
            have = {index // self.repeats for index in self.seen.get(subset, ())}
            lost = [row for row in rows if row not in have]
            level = int(match[1]) if (match := _LEVEL.fullmatch(subset)) else 0
            items = (
                [i.sample for i in self.dataset.items if i.subset == subset] if self.dataset else []
            )
            if len(items) == len(rows):
                found += [(sample.task_id, sample.level) for sample in items]
            else:
                found += [(f"{subset}[{row}]", level) for row in lost]
            if lost:
                self.warnings.append(
                    f"{subset}: not all that was asked for is there; by EvalScope's own count, "
                    f"{count.errored} of {count.requested} ended in error"
                )
        return found

    # --------------------------------------------------------------------------------- the samples

    def _reviews_of_all(self) -> Iterator[tuple[tuple[str, int], _Reviewed]]:
        for subset in self.files:
            path = self.root / "reviews" / self.model / f"gaia_{subset}.jsonl"
            if not path.exists():
                self.warnings.append(f"there are no reviews of {subset}")
                continue
            for what, line in lines(path):
                review = decode(line, _Review, what)
                yield (subset, review.index), _reviewed(review, what)

    def _samples(self) -> Iterator[ImportedSample]:
        for subset, path in self.files.items():
            last = {}
            for number, (what, line) in enumerate(lines(path)):
                last[decode(line, _Index, what).index] = number
            self.seen[subset] = set(last)
            for number, (what, line) in enumerate(lines(path)):
                index = decode(line, _Index, what).index
                if last.get(index) != number:
                    self.warnings.append(f"{subset}: index {index} is there twice; the last counts")
                    continue
                yield self._sample(decode(line, _Prediction, what), subset, what)

    def _sample(self, found: _Prediction, subset: str, what: str) -> ImportedSample:
        review = self.reviews.get((subset, found.index))
        trace = found.agent_trace or _Trace()
        by_message = {event.message_id: event for event in trace.events if event.message_id}
        talk = Talk(
            found.messages,
            what=what,
            model=self.model_name,
            params=self.params,
            timeout=self.timeout,
            server="evalscope",
            runs_unparsed=True,
            turn=lambda message: _turn(message, by_message, found, what),
            bash=bash_reply,
        )
        sample = self._identity(found, review, subset, what)
        outcome, last_error, notes = _outcome(found, talk, review, what)
        usage = trace.total_usage
        kept = talk.missing - set(MISSING)
        return ImportedSample(
            sample=sample,
            effects=talk.effects,
            outcome=outcome,
            last_error=last_error,
            verdict=review.verdict if review else None,
            told=review.told if review else "",
            truth=review.target if review else None,
            usage=_usage(usage) if usage else None,
            seconds=_seconds(trace),
            missing=sorted(kept) + ([] if review else ["its review"]),
            notes=notes,
        )

    def _identity(
        self, found: _Prediction, review: _Reviewed | None, subset: str, what: str
    ) -> Sample:
        """The sample by its task id, which `index` is not."""
        prompt = next((m.content for m in found.messages if m.role == "user"), "")
        prompt = prompt if isinstance(prompt, str) else ""
        question = question_of(prompt)
        metadata = found.metadata or _Metadata()
        if metadata.task_id is None and review is not None and review.metadata is not None:
            metadata = review.metadata
        task_id, level = metadata.task_id, _level(metadata.level)
        if not task_id and self.dataset is not None:
            task_id = by_question(self.dataset, prompt)
        if not task_id:
            raise DataError(
                f"{what}: it has no task id (EvalScope was told not to save metadata)",
                hint="--dataset DIR, where it can be found by its question",
            )
        match = _LEVEL.fullmatch(subset)
        generation = review.generation if review else None
        if generation is not None and 0 <= generation < 10_000:
            epoch = generation + 1
        elif self.repeats > 1:
            epoch = found.index % self.repeats + 1
        else:
            epoch = self._epochs[task_id] = self._epochs.get(task_id, 0) + 1
        return Sample(
            task_id=task_id,
            question=question,
            level=level or (int(match[1]) if match else 0),
            file_name=metadata.file_name or "",
            epoch=epoch,
        )


class _Index(msgspec.Struct):
    index: int


# ------------------------------------------------------------------------------------------ folders


def _locate(path: Path) -> tuple[Path, str]:
    """The output folder and the model; UsageError when there are several to choose from."""
    if path.is_file():
        raise UsageError(f"{path} is a file; EvalScope's results are a folder")
    if path.parent.name == "predictions":
        return path.parent.parent, path.name
    if not (path / "predictions").is_dir():
        inner = [found.name for found in _listing(path) if (found / "predictions").is_dir()]
        hint = "name the folder that holds configs, predictions, reviews and reports"
        raise DataError(
            f"{path} holds no folder `predictions`",
            hint=f"{path / sorted(inner)[-1]}" if inner else hint,
        )
    models = [found.name for found in _listing(path / "predictions") if found.is_dir()]
    if len(models) != 1:
        told = f"of {len(models)} models: {', '.join(sorted(models)[:10])}" if models else "empty"
        raise UsageError(
            f"{path / 'predictions'} is {told}; a run is of one",
            hint=f"{path / 'predictions' / 'MODEL'}",
        )
    return path, models[0]


def _listing(folder: Path) -> list[Path]:
    """What is in a folder, by name; nothing where there is none."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.append(Path(entry.path))
                if len(found) > _MAX_LISTED:
                    raise DataError(f"{folder} holds more than {_MAX_LISTED} files")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror or error}") from error
    return sorted(found)


# ------------------------------------------------------------------------------------------- values


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _level(value: str | int | float | None) -> int:
    """1 to 3; 0 where it is not said."""
    text = str(value).removesuffix(".0")
    return int(text) if text in ("1", "2", "3") else 0


def _usage(found: Perf) -> Usage:
    return Usage(max(found.input_tokens or 0, 0), max(found.output_tokens or 0, 0))


def _seconds(trace: _Trace) -> float:
    """From the first request to the last event."""
    times = [event.timestamp for event in trace.events if event.timestamp is not None]
    if not times:
        return 0.0
    first = trace.events[0].latency_ms or 0.0
    return min(max(max(times) - min(times) + first / 1000, 0.0), 1e9)


def _turn(message: Message, events: dict[str, _Event], found: _Prediction, what: str) -> Turn:
    perf = message.perf_metrics
    event = events.get(message.id or "")
    meta: dict[str, Any] = {}
    reason: str | None = None
    if event is not None and event.type == "model_generate":
        payload = plain(event.payload, what)
        told = payload.get("stop_reason") if isinstance(payload, dict) else None
        reason = told if isinstance(told, str) else None
        if event.latency_ms is not None:
            meta["seconds"] = round(event.latency_ms / 1000, 6)
    if reason is None and message is found.messages[-1] and found.model_output is not None:
        choices = found.model_output.choices
        reason = choices[0].stop_reason if choices else None
    return Turn(_usage(perf) if perf else Usage(), reason, meta or None)


def bash_reply(message: Message, text: str, error: ToolError | None) -> BashReply | None:
    """The result of a command, from the text that EvalScope makes of it; None if it did not run.

    Its parts are joined by line ends: output, `[stderr]` and errors, `[TIMEOUT]` or `[exit N]`.
    """
    if error is not None:
        return BashReply(exit_code=None, timed_out=True) if error.type == "timeout" else None
    if text == "(no output)":
        return BashReply()
    code: int | None = 0
    timed_out = text == "[TIMEOUT]" or text.endswith("\n[TIMEOUT]")
    if timed_out:
        text, code = text.removesuffix("[TIMEOUT]").removesuffix("\n"), None
    elif match := _EXIT.search(text):
        text, code = text[: match.start()], int(match[1])
    head, mark, tail = ("\n" + text).rpartition("\n[stderr]\n")
    stdout, stderr = (head[1:], tail) if mark else (text, "")
    return BashReply(
        stdout.encode("utf-8", "surrogatepass"),
        stderr.encode("utf-8", "surrogatepass"),
        code,
        timed_out,
    )


def _reviewed(review: _Review, what: str) -> _Reviewed:
    score = review.sample_score.score
    verdict: Verdict | None = None
    told = ""
    usable = score.status in (None, "success")
    for key, raw in score.value.items() if usable else ():
        value = plain(raw, what)
        if isinstance(value, int | float):
            verdict, told = ("right" if value == 1 else "wrong"), f"{key} {value:g}"
            break
    target = review.target
    if isinstance(target, list):
        target = target[0] if len(target) == 1 else None
    if (target or "").strip() in ("", UNKNOWN):  # the test split, which EvalScope scores too
        target, verdict = None, None
    answer = score.extracted_prediction
    return _Reviewed(
        verdict,
        told,
        score.prediction if answer is None else answer,
        target,
        review.sample_score.generation_index,
        review.sample_score.sample_metadata,
    )


def _outcome(
    found: _Prediction, talk: Talk, review: _Reviewed | None, what: str
) -> tuple[Outcome, str | None, list[str]]:
    """How the sample ended, why there is no answer, and what was decided about that."""
    output = found.model_output or _Output()
    if output.error:
        return failed("model", output.error), None, []
    answer = review.answer if review is not None else None
    if answer is None and output.choices and output.choices[0].message is not None:
        content = output.choices[0].message.content
        answer = content if isinstance(content, str) else None
    events = found.agent_trace.events if found.agent_trace else []
    stopped = any(_is_cut_off(event, what) for event in events if event.type == "error")
    return ended(talk, answer, stopped=stopped, tool="EvalScope")


def _is_cut_off(event: _Event, what: str) -> bool:
    payload = plain(event.payload, what)
    return isinstance(payload, dict) and payload.get("message") == "max_steps_exceeded"
