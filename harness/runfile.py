"""Run files: what was run, with what, and what became of each sample and epoch.

JSON that a person can read and git can merge: one line per field, one line per sample and epoch.
The last field is a SHA-256 over all others, so that an edited or damaged run file is noticed. No
question, answer or truth stands in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec

from harness import canonical
from harness.errors import DamageError, UsageError
from harness.records import Settings, Usage, Verdict
from harness.store import Store, check_run_name

FORMAT = "gaia-harness-run"
VERSION = 1


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run was told. What `transport` holds may differ when a run is continued."""

    loop: Settings
    agent: str = "harness.agent:react"
    agent_source: str = ""
    """SHA-256 of the source file of the agent's module."""
    stream: bool = False
    sandbox: dict[str, Any] = {}
    mcp: list[dict[str, Any]] = []
    sample_seconds: float | None = None
    sample_tokens: int | None = None
    run_tokens: int | None = None
    transport: dict[str, Any] = {}
    """Endpoint, HTTP timeout and retries, batch size: nothing that a reply depends on."""


class DatasetRef(msgspec.Struct, frozen=True, kw_only=True):
    """Which data set a run was made over."""

    id: str
    source: str = ""
    """`mini`, a hub's name, or `folder` (whose path is not kept)."""
    revision: str | None = None
    split: str = "validation"
    digest: str


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which samples of the split were chosen."""

    subsets: list[str] = []
    task_ids: list[str] = []
    limit: int | None = None
    shuffle_seed: int | None = None
    epochs: int = 1
    selected: int = 0
    of: int = 0
    digest: str = ""
    """`sha256:…` over the list of the chosen task ids."""

    def told(self, split: str) -> str:
        """One line: how many of the split were chosen, by which options, and the list's digest."""
        options = [f"--subset {name}" for name in self.subsets]
        options += [f"--task-id {name}" for name in self.task_ids[:3]]
        if len(self.task_ids) > 3:
            options.append("…")
        if self.limit is not None:
            options.append(f"--limit {self.limit}")
        if self.shuffle_seed is not None:
            options.append(f"--shuffle-seed {self.shuffle_seed}")
        by = f" by {' '.join(options)}" if options else ""
        count = f"{self.selected} of {self.of} samples of {split} selected{by}"
        return f"{count}; list {self.digest[:19]}" if self.digest else count


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One sample and epoch."""

    task_id: str
    epoch: int
    level: int
    status: Literal["ok", "error", "missing"] = "missing"
    verdict: Verdict = "missing"
    verdict_source: Literal["scored", "sealed", "recorded"] | None = None
    cassette: str | None = None
    steps: int = 0
    usage: Usage = Usage()
    seconds: float = 0.0
    """Live time from the first request to the seal."""
    replayable: bool = True
    drift: int = 0
    """How many drifts were found when the sandbox was rebuilt."""

    def what(self, run: str) -> str:
        """What its cassette is called where something is said of it."""
        return f"the cassette of sample {self.task_id!r}, epoch {self.epoch}, in run {run!r}"


class RunFile(msgspec.Struct, kw_only=True):
    """A run."""

    name: str
    harness: str
    settings: RunSettings
    environment: dict[str, Any]
    """Versions, and the image's reference, id and layers."""
    dataset: DatasetRef
    selection: Selection
    tools: list[dict[str, Any]] = []
    """The MCP servers' tools, as they were read once: name, server, schema."""
    marks: list[str] = []
    """What makes this run more, or less, than a plain recording; shown wherever its score is."""
    sealed_key: str | None = None
    """`sha256:…` of the sealed answer key, where there is one (`harness seal-truths`)."""
    samples: list[Entry]

    def entry(self, task_id: str, epoch: int) -> Entry | None:
        """The line of one sample and epoch, if there is one."""
        for entry in self.samples:
            if entry.task_id == task_id and entry.epoch == epoch:
                return entry
        return None


class _Frame(msgspec.Struct, kw_only=True):
    format: str
    version: int
    digest: str = ""


def encode(run: RunFile) -> bytes:
    """The bytes of a run file."""
    fields = {"format": FORMAT, "version": VERSION, **msgspec.to_builtins(run)}
    entries = [_text(entry) for entry in fields.pop("samples")]
    texts = {key: _text(value) for key, value in fields.items()}
    # each text serves twice, in its line and in the canonical form that is digested
    whole = {**texts, "samples": f"[{','.join(entries)}]"}
    form = ",".join(f"{_text(key)}:{whole[key]}" for key in sorted(whole))
    digest = "sha256:" + sha256(f"{{{form}}}".encode()).hexdigest()
    lines = [f"{_text(key)}: {text}" for key, text in texts.items()]
    joined = ",\n  ".join(entries)
    lines += [f'"samples": [\n  {joined}\n]' if entries else '"samples": []']
    lines += [f'"digest": "{digest}"']
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _text(value: Any) -> str:
    # the canonical form differs from plain JSON in nothing that a reader sees but the key order
    return canonical.dumps(value).decode()


def _digest(fields: dict[str, Any]) -> str:
    return "sha256:" + sha256(canonical.dumps(fields)).hexdigest()


def decode(data: bytes, what: str) -> RunFile:
    """The run that the bytes hold; DamageError when they are not as they were written."""
    try:
        fields = _load(data)
        frame = msgspec.convert(fields, _Frame)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DamageError(f"{what} is damaged: {error}") from None
    if frame.format != FORMAT:
        raise DamageError(f"{what} is no run file of this program")
    if frame.version != VERSION:
        raise UsageError(f"{what} is of version {frame.version}; this program reads {VERSION}")
    fields.pop("digest", None)
    try:
        matches = _digest(fields) == frame.digest
    except ValueError:
        matches = False
    if not matches:
        raise DamageError(f"{what} is damaged: its content is not what its digest says")
    try:
        return msgspec.convert(fields, RunFile)
    except msgspec.ValidationError as error:
        raise DamageError(f"{what} is damaged: {error}") from None


def _load(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)  # again for lone surrogates, which only this one reads


def read_run(store: Store, name: str) -> RunFile:
    """A run of the store; UsageError when there is none, DamageError when it is damaged."""
    check_run_name(name)
    what = f"the run file of {name!r}"
    run = decode(store.read_run(name), what)
    check(run, what)
    run.name = name
    return run


class _Image(msgspec.Struct):
    id: str
    layers: list[str]
    reference: str = ""


class _Tool(msgspec.Struct):
    name: str
    server: str
    schema: dict[str, Any]


class _Transport(msgspec.Struct):
    api_url: str | None = None
    timeout: float = 0.0
    retries: int = 0
    retry_interval: float = 0.0
    eval_batch_size: Annotated[int, msgspec.Meta(ge=1)] = 1


def check(run: RunFile, what: str) -> None:
    """DamageError when what stands in the open-ended fields is not what their readers expect."""
    try:
        msgspec.convert(run.environment.get("image"), _Image | None)
        msgspec.convert(run.tools, list[_Tool])
        msgspec.convert(run.settings.transport, _Transport)
    except msgspec.ValidationError as error:
        raise DamageError(f"{what} is damaged: {error}") from None


def write_run(store: Store, run: RunFile) -> None:
    """Create or replace the run file of that name."""
    store.write_run(run.name, encode(run))


def differences(old: RunSettings, new: RunSettings) -> list[str]:
    """The fields in which two settings differ, as `field: old → new` lines; transport aside."""
    found: list[str] = []
    _compare(_comparable(old), _comparable(new), "", found)
    return found


def _comparable(settings: RunSettings) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(settings)
    del value["transport"]
    return value


def _compare(old: Any, new: Any, path: str, found: list[str]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            _compare(old.get(key), new.get(key), f"{path}.{key}" if path else key, found)
    elif canonical.dumps(old) != canonical.dumps(new):
        found.append(f"{path}: {_short(old)} → {_short(new)}")


def _short(value: Any) -> str:
    text = canonical.dumps(value).decode()
    return text if len(text) <= 120 else text[:117] + "..."


def imported_from(run: RunFile) -> str:
    """The tool and version that a run was imported from; empty for a recording of ours."""
    found = run.environment.get("imported")
    if not isinstance(found, dict):
        return ""
    return f"{found.get('tool', 'another tool')} {found.get('version', '')}".strip()


def tools_of(run: RunFile) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The MCP tools' schemas as they go into requests, and which server each belongs to."""
    return (
        [tool["schema"] for tool in run.tools],
        {tool["name"]: tool["server"] for tool in run.tools},
    )


def chosen(run: RunFile, task_ids: Iterable[str]) -> list[Entry]:
    """The run's samples, or those named."""
    wanted = {whole_id(run, task_id) for task_id in task_ids}
    return [entry for entry in run.samples if not wanted or entry.task_id in wanted]


def whole_id(run: RunFile, given: str) -> str:
    """A task id of the run, from itself or from an unambiguous beginning; UsageError for others."""
    ids = {entry.task_id for entry in run.samples}
    found = [given] if given in ids else sorted(id for id in ids if given and id.startswith(given))
    if len(found) == 1:
        return found[0]
    raise UsageError(
        f"run {run.name!r} has no sample {given!r}"
        if not found
        else f"run {run.name!r} has {len(found)} samples that begin with {given!r}: "
        f"{', '.join(found[:4])}{', …' if len(found) > 4 else ''}",
        hint=f"harness show {run.name}",
    )
