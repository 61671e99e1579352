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
from typing import Any

import msgspec

from harness.dataset import Dataset
from harness.errors import DataError, UsageError
from harness.interop.conversation import (
    ARGUMENTS,
    Talk,
    by_question,
    question_of,
)
from harness.interop.evalscope_rows import (
    Index,
    Metadata,
    Prediction,
    Review,
    Reviewed,
    Trace,
    bash_reply,
    outcome_of,
    reviewed,
    seconds_of,
    turn_of,
    usage_of,
)
from harness.interop.imported import ImportedSample, ImportReport, Source
from harness.interop.importing import MAX_MISSING, write_import
from harness.interop.reading import decode, lines, read_file
from harness.interop.settings_yaml import read_settings
from harness.records import Sample, Settings
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
_ALL = "2023_all"
_PARAMS = ("temperature", "top_p", "top_k", "max_tokens", "seed", "parallel_tool_calls", "n")
_MAX_LISTED = 10_000  # files of a folder


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
        self.seen: dict[str, dict[int, str]] = {}
        """The task ids that were found, by subset and row."""
        self._epochs: dict[str, int] = {}

    def _config(self) -> dict[str, Any]:
        files = [f for f in _listing(self.root / "configs") if f.name.startswith("task_config")]
        found = [read_settings(file) for file in files]  # older versions wrote one per call
        ours = [settings for settings in found if settings.get("model_id") == self.model]
        return (ours or found or [{}])[-1]

    def _benchmark(self, key: str) -> Any:
        """A setting of GAIA's, as it was given or as it came out; None if it is in neither."""
        for part in ("dataset_args", "resolved_benchmarks"):
            found = self.config.get(part)
            gaia = found.get("gaia") if isinstance(found, dict) else None
            if isinstance(gaia, dict) and gaia.get(key):
                return gaia[key]
        return None

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
            split="test" if self._benchmark("eval_split") == "test" else split,
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
        id = self._benchmark("dataset_id")
        if not isinstance(id, str) or not id:
            return "gaia-benchmark/GAIA"
        return id.rstrip("/\\").replace("\\", "/").rpartition("/")[2] if id[:1] in "/.~" else id

    def _requested(self) -> dict[str, tuple[int, int]]:
        """How many rows of each subset were to be run, and how many are known to have failed."""
        if self.report.execution_summary is not None:
            return {
                subset: (min(count.requested, 2 * MAX_MISSING) // self.repeats, count.errored)
                for subset, count in self.report.execution_summary.subsets.items()
            }
        if self.dataset is None:
            self.warnings.append(
                "EvalScope did not report how many samples were to be run: those that are not "
                "there are not known without --dataset"
            )
            return {}
        told, limit = self._benchmark("subset_list"), self.config.get("limit")
        counts = {name: len(self._items(name)) for name in told or self.files}
        if isinstance(limit, float) and 0 < limit < 1:
            counts = {name: int(count * limit) for name, count in counts.items()}
        elif limit := _whole(limit):
            counts = {name: min(count, limit) for name, count in counts.items()}
        return {name: (count, 0) for name, count in counts.items()}

    def _items(self, subset: str) -> list[Sample]:
        """The rows of a subset in the user's own data set."""
        items = self.dataset.items if self.dataset else ()
        return [item.sample for item in items if subset in (item.subset, _ALL)]

    def _expected(self) -> list[tuple[str, int]]:
        """What was asked for and did not come, once all was read: by task id where that is known,
        else by its row."""
        found: list[tuple[str, int]] = []
        for subset, (count, errored) in self._requested().items():
            have, items = self.seen.get(subset, {}), self._items(subset)[:count]
            lost = [row for row in range(count) if row not in have]
            level = int(match[1]) if (match := _LEVEL.fullmatch(subset)) else 0
            ids = {row: sample.task_id for row, sample in enumerate(items)}
            if len(items) == count and have.items() <= ids.items():  # the same rows, in that order
                found += [(items[row].task_id, items[row].level) for row in lost]
            else:
                found += [(f"{subset}[{row}]", level) for row in lost]
            if lost:
                told = f"; by EvalScope's own count, {errored} ended in error" if errored else ""
                self.warnings.append(
                    f"{subset}: {len(lost)} of {count} that were asked for are not there{told}"
                )
        return found

    # --------------------------------------------------------------------------------- the samples

    def _reviews_of_all(self) -> Iterator[tuple[tuple[str, int], Reviewed]]:
        for subset in self.files:
            path = self.root / "reviews" / self.model / f"gaia_{subset}.jsonl"
            if not path.exists():
                self.warnings.append(f"there are no reviews of {subset}")
                continue
            for what, line in lines(path, self.warnings):
                review = decode(line, Review, what)
                yield (subset, review.index), reviewed(review, what)

    def _samples(self) -> Iterator[ImportedSample]:
        for subset, path in self.files.items():
            last = {}
            for number, (what, line) in enumerate(lines(path, self.warnings)):
                last[decode(line, Index, what).index] = number
            self.seen[subset] = {}
            for number, (what, line) in enumerate(lines(path, self.warnings)):
                index = decode(line, Index, what).index
                if last.get(index) != number:
                    self.warnings.append(f"{subset}: index {index} is there twice; the last counts")
                    continue
                sample = self._sample(decode(line, Prediction, what), subset, what)
                self.seen[subset][index // self.repeats] = sample.sample.task_id
                yield sample

    def _sample(self, found: Prediction, subset: str, what: str) -> ImportedSample:
        review = self.reviews.get((subset, found.index))
        trace = found.agent_trace or Trace()
        turns = [event for event in trace.events if event.type == "model_generate"]
        by_message = {event.message_id: event for event in turns if event.message_id}
        talk = Talk(
            found.messages,
            what=what,
            model=self.model_name,
            params=self.params,
            timeout=self.timeout,
            server="evalscope",
            runs_unparsed=True,
            turn=lambda message: turn_of(message, by_message, found, what),
            bash=bash_reply,
        )
        sample = self._identity(found, review, subset, what)
        outcome, last_error, notes = outcome_of(found, talk, review, what)
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
            usage=usage_of(usage) if usage else None,
            seconds=seconds_of(trace),
            missing=sorted(kept) + ([] if review else ["its review"]),
            notes=notes,
        )

    def _identity(
        self, found: Prediction, review: Reviewed | None, subset: str, what: str
    ) -> Sample:
        """The sample by its task id, which `index` is not."""
        prompt = next((m.content for m in found.messages if m.role == "user"), "")
        prompt = prompt if isinstance(prompt, str) else ""
        question = question_of(prompt)
        metadata = found.metadata or Metadata()
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
