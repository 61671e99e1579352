"""The Python interface: `TaskConfig` and `run_task` in EvalScope's terms, `replay`, `score`."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness import canonical
from harness.config import (
    DEFAULT_DATASET_ID,
    HUBS,
    RecordOptions,
    check_options,
    nearest,
    record_config,
)
from harness.errors import UsageError
from harness.mcp_config import MCPServerConfigHTTP, MCPServerConfigStdio, to_settings
from harness.replaying import ReplayOptions, replay_run
from harness.report import RunReport, table
from harness.scoring import Scored, ScoreOptions, score_run
from harness.store import Store


class _Checked(msgspec.Struct, kw_only=True):
    """Keyword arguments with known names only."""

    @classmethod
    def of(cls, value: Any, where: str) -> Any:
        """From itself or from a mapping; UsageError naming the nearest key for an unknown one."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise UsageError(f"{where} must be a mapping, not {type(value).__name__}")
        for key in value:
            if key not in cls.__struct_fields__:
                raise UsageError(
                    f"{where} has no key {key!r}{nearest(str(key), cls.__struct_fields__)}"
                )
        try:
            return msgspec.convert(dict(value), cls, strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(f"{where}: {error}") from None


class NativeAgentConfig(_Checked):
    """The agent: how long it may work, and which MCP servers it can call."""

    max_steps: int | None = None
    command_timeout: float | None = None
    max_output_chars: int | None = None
    context_limit: int | None = None
    send_reasoning: bool | None = None
    prompt_template: str | None = None
    mcp_servers: Sequence[Any] = ()


class _ExtraParams(_Checked):
    max_steps: int | None = None
    command_timeout: float | None = None
    docker_image: str | None = None
    network_enabled: bool | None = None
    max_output_chars: int | None = None
    context_limit: int | None = None


class _DatasetArgs(_Checked):
    subset_list: Sequence[str] = ()
    extra_params: Any = {}
    dataset_id: str | None = None
    revision: str | None = None
    split: str = "validation"
    shuffle_seed: int | None = None


class _SandboxDefaults(_Checked):
    image: str | None = None
    network_enabled: bool | None = None
    memory: str | None = None
    cpus: float | None = None
    pids_limit: int | None = None


class _Sandbox(_Checked):
    enabled: bool = True
    engine: str = "docker"
    default_config: Any = {}


class _Fields(_Checked):
    model: str | None = None
    api_url: str | None = None
    api_key: str | None = None
    eval_type: str = "openai_api"
    datasets: Sequence[str] = ("gaia",)
    dataset_args: dict[str, Any] | None = None
    dataset_hub: str = "modelscope"
    eval_batch_size: int = 1
    limit: int | None = None
    epochs: int = 1
    generation_config: dict[str, Any] | None = None
    agent_config: Any = None
    sandbox: Any = None
    ignore_errors: bool = False
    work_dir: Any = None
    run_name: str | None = None


_FIELDS = dict(zip(_Fields.__struct_fields__, _Fields.__struct_defaults__, strict=True))


class TaskConfig:
    """What to run, by the names that EvalScope's users know.

    `work_dir` is the store; `run_name` the run in it, by default made of the model's name and the
    settings, so that the same configuration continues its own run.
    """

    def __init__(self, **given: Any) -> None:
        """Raises UsageError for a value of another type, and for an unknown key, naming the nearest
        known one."""
        self._given = msgspec.structs.asdict(_Fields.of(given, "TaskConfig"))
        self.model: str = self._given["model"] or ""
        if not self.model.strip():
            raise UsageError("TaskConfig needs a model")
        if not isinstance(self.work_dir, str | os.PathLike | None):
            raise UsageError(f"TaskConfig: work_dir must be a folder's path, not {self.work_dir!r}")
        if self._given["eval_type"] != "openai_api":
            raise UsageError(f"eval_type {self._given['eval_type']!r} is not openai_api")
        if list(self._given["datasets"]) != ["gaia"]:
            raise UsageError(f"datasets {self._given['datasets']!r}: this program runs ['gaia']")

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_given"][name]
        except KeyError:
            raise AttributeError(name) from None

    def store(self) -> Store:
        """The store that `work_dir` names."""
        return Store(self.work_dir or os.environ.get("HARNESS_STORE") or "cassettes")

    def options(self) -> RecordOptions:
        """The same as the options of `harness record`."""
        args = dict(self.dataset_args or {})
        for key in args:
            if key != "gaia":
                raise UsageError(f"dataset_args has no key {key!r}{nearest(key, ['gaia'])}")
        data = _DatasetArgs.of(args.get("gaia", {}), "dataset_args['gaia']")
        extra = _ExtraParams.of(data.extra_params, "dataset_args['gaia']['extra_params']")
        agent = NativeAgentConfig.of(self.agent_config or {}, "agent_config")
        sandbox = _Sandbox.of(self.sandbox or {}, "sandbox")
        defaults = _SandboxDefaults.of(sandbox.default_config, "sandbox['default_config']")
        loop = {
            name: value
            for source in (extra, agent)
            for name in ("max_steps", "command_timeout", "max_output_chars", "context_limit",
                         "send_reasoning", "prompt_template")
            if (value := getattr(source, name, None)) is not None
        }  # fmt: skip
        box = {
            "kind": "docker" if sandbox.engine == "docker" and sandbox.enabled else "local",
            "image": defaults.image or extra.docker_image or "python:3.11",
            "network": next(
                (v for v in (defaults.network_enabled, extra.network_enabled) if v is not None),
                True,
            ),
            "memory": defaults.memory,
            "cpus": defaults.cpus,
            "pids_limit": defaults.pids_limit,
        }
        if not sandbox.enabled or sandbox.engine not in ("docker", "local"):
            raise UsageError(
                "sandbox: the engine is 'docker'; commands on this machine, which is unsafe, "
                "have to be asked for with engine='local'"
            )
        source, dataset_id = _source(self.dataset_hub, data.dataset_id)
        options = RecordOptions(
            run=self.run_name or "unnamed",
            model=self.model,
            dataset=source,
            dataset_id=dataset_id,
            revision=data.revision,
            split=data.split,
            subsets=tuple(data.subset_list),
            limit=self.limit,
            shuffle_seed=data.shuffle_seed,
            epochs=self.epochs,
            api_url=self.api_url,
            api_key=self.api_key,
            generation=dict(self.generation_config or {}),
            sandbox={key: value for key, value in box.items() if value is not None},
            eval_batch_size=self.eval_batch_size,
            ignore_errors=self.ignore_errors,
            mcp=tuple(agent.mcp_servers),
            **loop,
        )
        for server in options.mcp:
            if not isinstance(server, MCPServerConfigStdio | MCPServerConfigHTTP):
                raise UsageError(
                    "agent_config: mcp_servers takes MCPServerConfigStdio and MCPServerConfigHTTP, "
                    f"not {type(server).__name__}"
                )
        check_options(options)
        if not self.run_name:
            options = msgspec.structs.replace(options, run=_run_name(options))
        return options


def _source(hub: str, dataset_id: str | None) -> tuple[str, str | None]:
    """What `--dataset` and `--dataset-id` would be."""
    if hub not in HUBS:
        raise UsageError(f"dataset_hub {hub!r}{nearest(hub, HUBS)}; there are {', '.join(HUBS)}")
    if dataset_id == "mini" or (dataset_id and Path(dataset_id).is_dir()):
        return str(dataset_id), None
    return hub, dataset_id or DEFAULT_DATASET_ID


def _run_name(options: RecordOptions) -> str:
    """A name that the same configuration always gets, whatever its key and endpoint."""
    counted = msgspec.to_builtins(
        msgspec.structs.replace(options, api_key=None, api_url=None, run="", mcp=())
    )
    counted["mcp"] = [to_settings(server) for server in options.mcp]
    model = re.sub(r"[^A-Za-z0-9._-]+", "-", options.model).strip("-._")[:60] or "model"
    return f"{model}-{canonical.digest(counted)[:8]}"


def run_task(task_cfg: TaskConfig | Mapping[str, Any]) -> RunReport:
    """Record what is not recorded yet, print the table, return the report.

    Samples that ended in error are counted, never dropped; a second call retries nothing and
    makes no request. Raises UsageError, LackError and Finding for what stops the whole run.
    """
    from harness.cli.record import connect, interruptible
    from harness.progress import progress_for
    from harness.recording import record

    config = task_cfg if isinstance(task_cfg, TaskConfig) else TaskConfig(**task_cfg)
    progress = progress_for()
    recording = record_config(config.options(), progress=progress.note)
    stop = threading.Event()
    main = threading.current_thread() is threading.main_thread()
    with interruptible(stop, progress) if main else contextlib.nullcontext():
        done = record(config.store(), recording, connect=connect, progress=progress, stop=stop)
    for finding in done.findings:
        print(finding, file=sys.stderr)
    print(f"{done.report.run}\n{table(done.report)}")
    if done.interrupted:
        raise KeyboardInterrupt
    return done.report


def replay(run: str, *, store: Store | str | None = None, **options: Any) -> RunReport:
    """Replay a recorded run; `options` are the fields of `ReplayOptions`.

    The report holds every divergence; nothing is printed, and nothing live is needed.
    """
    report, _ = replay_run(_store(store), run, ReplayOptions(**options))
    return report


def score(run: str, *, store: Store | str | None = None, **options: Any) -> Scored:
    """Score a run's recorded answers again; `options` are the fields of `ScoreOptions`."""
    return score_run(_store(store), run, ScoreOptions(**options))


def _store(store: Store | str | None) -> Store:
    if isinstance(store, Store):
        return store
    return Store(store or os.environ.get("HARNESS_STORE") or "cassettes")


__all__ = [
    "MCPServerConfigHTTP",
    "MCPServerConfigStdio",
    "NativeAgentConfig",
    "TaskConfig",
    "replay",
    "run_task",
    "score",
]
