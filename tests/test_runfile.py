"""Run files: read back as they were written, and no edit of one goes unnoticed."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness import canonical
from harness.errors import DamageError, HarnessError, UsageError
from harness.records import VERDICTS, ModelRequest, Reply, Request, Sample, Settings, Usage
from harness.runfile import (
    DatasetRef,
    Entry,
    RunFile,
    RunSettings,
    Selection,
    decode,
    differences,
    encode,
    read_run,
    write_run,
)
from harness.store import Store
from tests.json_values import texts, values
from tests.scripted import Backend, call, config, dataset, says, take

counts = st.integers(0, 10**9)
objects = st.dictionaries(texts, values(), max_size=3)
seconds = st.floats(0, 1e9)
loops = st.builds(
    Settings,
    model=texts,
    params=objects,
    max_steps=counts,
    command_timeout=seconds,
    max_output_chars=counts,
    context_limit=st.none() | counts,
    prompt_template=st.none() | texts,
    send_reasoning=st.booleans(),
)
run_settings = st.builds(
    RunSettings,
    loop=loops,
    agent=texts,
    stream=st.booleans(),
    sandbox=objects,
    mcp=st.lists(objects, max_size=2),
    sample_seconds=st.none() | seconds,
    run_tokens=st.none() | counts,
    transport=objects,
)
entries = st.builds(
    Entry,
    task_id=texts,
    epoch=st.integers(1, 9),
    level=st.integers(1, 3),
    status=st.sampled_from(["ok", "error", "missing"]),
    verdict=st.sampled_from(VERDICTS),
    verdict_source=st.sampled_from([None, "scored", "sealed", "recorded"]),
    cassette=st.none() | texts,
    steps=counts,
    usage=st.builds(Usage, counts, counts),
    seconds=seconds,
    replayable=st.booleans(),
    drift=counts,
)
run_files = st.builds(
    RunFile,
    name=st.just("r"),
    harness=texts,
    settings=run_settings,
    environment=objects,
    dataset=st.builds(DatasetRef, id=texts, revision=st.none() | texts, digest=texts),
    selection=st.builds(
        Selection, subsets=st.lists(texts, max_size=2), limit=st.none() | counts, digest=texts
    ),
    tools=st.lists(objects, max_size=2),
    marks=st.lists(texts, max_size=2),
    samples=st.lists(entries, max_size=3),
)

FULL = RunFile(
    name="r",
    harness="1.2.3",
    settings=RunSettings(
        loop=Settings(
            model="m",
            params={"temperature": 0.5, "extra_body": {"a": [1, None, True]}},
            context_limit=1000,
            prompt_template="{question}\n\ud800",
        ),
        agent_source="sha256:00",
        sandbox={"image": "python:3.11"},
        mcp=[{"name": "fetch"}],
        sample_tokens=5,
        transport={"retries": 3},
    ),
    environment={"python": "3.11", "image": {"id": "x", "layers": ["y"]}},
    dataset=DatasetRef(id="d", revision="main", digest="sha256:11"),
    selection=Selection(subsets=["2023_level1"], limit=5, shuffle_seed=7, selected=2, of=3),
    tools=[{"name": "t", "server": "s", "schema": {"type": "function"}}],
    marks=["loose"],
    samples=[
        Entry(task_id="a", epoch=1, level=1),
        Entry(
            task_id="b",
            epoch=2,
            level=3,
            status="error",
            verdict="error",
            verdict_source="scored",
            cassette="sha256:22",
            steps=7,
            usage=Usage(10, 5),
            seconds=1.5,
            replayable=False,
            drift=1,
        ),
    ],
)


def same(one: RunFile, other: RunFile) -> bool:
    """Whether two runs are equal as JSON: 1 and 1.0 are one number, a surrogate pair one letter."""
    return canonical.dumps(msgspec.to_builtins(one)) == canonical.dumps(msgspec.to_builtins(other))


@given(run_files)
@example(FULL)
def test_a_run_reads_back_as_it_was_written(run: RunFile) -> None:
    data = encode(run)
    again = decode(data, "x")
    assert same(again, run)
    assert encode(again) == data
    assert differences(again.settings, run.settings) == []


def test_a_person_can_read_it_and_git_can_merge_it() -> None:
    """One line for each field, one for each sample; nothing but the digest changes besides."""
    lines = encode(FULL).decode().splitlines()
    assert lines[0] == "{"
    assert lines[1] == '"format": "gaia-harness-run",'
    assert lines[2] == '"version": 1,'
    assert sum(line.startswith('  {"') for line in lines) == 2
    more = [FULL.samples[0], Entry(task_id="aa", epoch=1, level=2), FULL.samples[1]]
    longer = msgspec.structs.replace(FULL, samples=more)
    changed = [line for line in encode(longer).decode().splitlines() if line not in lines]
    assert len(changed) == 2
    assert '"aa"' in changed[0]
    assert changed[1].startswith('"digest": "sha256:')
    assert json.loads(encode(FULL))["samples"][1]["verdict"] == "error"


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON value, inner and outer ones."""
    if path:
        yield path
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield from leaves(item, (*path, key))


def edited(fields: Any, path: tuple[Any, ...], how: str) -> Any:
    """A copy with one value changed, removed, or with a neighbour."""
    found = copy.deepcopy(fields)
    holder = found
    for key in path[:-1]:
        holder = holder[key]
    old = holder[path[-1]]
    if how == "remove":
        del holder[path[-1]]
    elif how == "add" and isinstance(old, dict):
        old["another"] = 1
    elif how == "add" and isinstance(old, list):
        old.append("another")
    elif type(old) is bool:
        holder[path[-1]] = not old
    elif isinstance(old, int | float):
        holder[path[-1]] = old + 1
    elif isinstance(old, str):
        holder[path[-1]] = old + "x"
    else:
        holder[path[-1]] = "changed"
    return found


@pytest.mark.parametrize("how", ["change", "remove", "add"])
def test_every_edit_of_a_field_is_noticed(how: str) -> None:
    fields = json.loads(encode(FULL))
    paths = [path for path in leaves(fields) if path[0] not in ("format", "version")]
    assert len(paths) > 70
    for path in paths:
        with pytest.raises(DamageError, match="the run file is damaged"):
            decode(json.dumps(edited(fields, path, how)).encode(), "the run file")


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_no_single_byte_changes_what_is_read(at: int, byte: int) -> None:
    """Every other byte is damage, or means the same (a blank for a line end)."""
    data = bytearray(encode(FULL))
    data[at % len(data)] = byte
    try:
        found = decode(bytes(data), "x")
    except HarnessError:
        return
    assert same(found, FULL)


def test_every_cut_is_noticed() -> None:
    data = encode(FULL)
    for size in range(len(data) - 1):
        with pytest.raises(DamageError, match="x is damaged"):
            decode(data[:size], "x")


def test_changed_line_endings_do_no_harm() -> None:
    """E13: the digest is over what the file says."""
    assert same(decode(encode(FULL).replace(b"\n", b"\r\n"), "x"), FULL)


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_version_is_refused_by_name(version: int) -> None:
    """Whatever else is in it."""
    for text in (b"{}", encode(FULL)):
        fields = json.loads(text)
        data = json.dumps({**fields, "format": "gaia-harness-run", "version": version}).encode()
        with pytest.raises(UsageError, match=f"the run file is of version {version}; .* reads 1"):
            decode(data, "the run file")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "the run file is damaged"),
        (b"[]", "the run file is damaged"),
        (b"{}", "the run file is damaged"),
        (b"null", "the run file is damaged"),
        (b"\xff\xfe", "the run file is damaged"),
        (b"[" * 1_000_000, "the run file is damaged"),
        (b'{"a":' * 1_000_000, "the run file is damaged"),
        (b'{"format": "gaia-harness-run", "version": 1, "digest": "sha256:00"}', "its content"),
        (b'{"format": "gaia-harness-run", "version": 1}', "its content"),
        (b'{"format": "gaia-harness-run", "version": 1, "x": NaN, "y": "\\ud800"}', "its content"),
        (b'{"format": "gaia-harness-run", "version": true}', "the run file is damaged"),
        (b'{"format": "other", "version": 1, "digest": ""}', "no run file of this program"),
    ],
)
def test_what_is_no_run_file_is_damage(data: bytes, told: str) -> None:
    with pytest.raises(DamageError, match=told):
        decode(data, "the run file")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("samples", 0, "level"), "one"),
        (("samples", 0, "verdict"), "perfect"),
        (("samples",), {}),
        (("settings", "loop", "max_steps"), 1.5),
        (("dataset",), None),
    ],
)
def test_wrong_types_are_damage_even_with_a_right_digest(path: tuple[Any, ...], value: Any) -> None:
    """Written to attack: the digest fits, the content does not."""
    fields = json.loads(encode(FULL))
    holder = fields
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    del fields["digest"]
    fields["digest"] = "sha256:" + canonical.digest(fields)
    with pytest.raises(DamageError, match="x is damaged"):
        decode(json.dumps(fields).encode(), "x")


def test_a_run_in_a_store(store: Store) -> None:
    write_run(store, FULL)
    assert same(read_run(store, "r"), FULL)
    assert read_run(store, "r").entry("b", 2) == FULL.samples[1]
    assert read_run(store, "r").entry("b", 1) is None
    store.write_run("copy", store.read_run("r"))
    assert read_run(store, "copy").name == "copy"
    store.write_run("bad", store.read_run("r").replace(b'"b"', b'"c"'))
    with pytest.raises(DamageError, match="the run file of 'bad' is damaged"):
        read_run(store, "bad")
    with pytest.raises(UsageError, match="no run 'none'"):
        read_run(store, "none")
    with pytest.raises(UsageError, match="cannot name a run"):
        read_run(store, "../r")


def test_no_question_answer_or_truth_stands_in_it(store: Store, tmp_path: Path) -> None:
    def answering(sample: Sample, request: Request) -> Reply:
        assert isinstance(request, ModelRequest)
        return says(None, call("submit", answer="the-answer-canary"))

    data = dataset(tmp_path / "d", [("id-canary", 1, "the-truth-canary")])
    take(store, config(data), Backend(answering))
    written = store.read_run("r")
    assert b"id-canary" in written
    for canary in (b"the-answer-canary", b"the-truth-canary", b"What is the name"):
        assert canary not in written


# ----------------------------------------------------------------------------------- differences

BASE = FULL.settings


def changed(**fields: Any) -> RunSettings:
    return msgspec.structs.replace(BASE, **fields)


def changed_loop(**fields: Any) -> RunSettings:
    return changed(loop=msgspec.structs.replace(BASE.loop, **fields))


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (changed_loop(model="n"), ['loop.model: "m" → "n"']),
        (changed_loop(max_steps=7), ["loop.max_steps: 50 → 7"]),
        (
            changed_loop(prompt_template=None),
            [r'loop.prompt_template: "{question}\n\ud800" → null'],
        ),
        (
            changed_loop(params={"temperature": 0.7, "extra_body": {"a": [1]}, "seed": 1}),
            [
                "loop.params.extra_body.a: [1,null,true] → [1]",
                "loop.params.seed: null → 1",
                "loop.params.temperature: 0.5 → 0.7",
            ],
        ),
        (changed(stream=True), ["stream: false → true"]),
        (changed(agent="mine:agent"), ['agent: "harness.agent:react" → "mine:agent"']),
        (changed(sandbox={}), ['sandbox.image: "python:3.11" → null']),
        (changed(mcp=[]), ['mcp: [{"name":"fetch"}] → []']),
        (changed(sample_tokens=None), ["sample_tokens: 5 → null"]),
        (changed(transport={"retries": 9, "api_url": "http://other"}), []),
        (changed_loop(command_timeout=180), []),
    ],
)
def test_which_settings_differ(new: RunSettings, told: list[str]) -> None:
    """F05: each by name; what only transports does not count, nor how a number is spelt."""
    assert differences(BASE, new) == told


def test_long_values_are_told_in_short() -> None:
    (line,) = differences(BASE, changed_loop(prompt_template="x" * 10_000))
    assert len(line) < 300
    assert line.endswith("xxx...")


@given(run_settings, run_settings, st.sampled_from(RunSettings.__struct_fields__))
def test_settings_differ_exactly_when_their_json_does(
    one: RunSettings, donor: RunSettings, field: str
) -> None:
    """One field taken from another. An absent option and a null one mean the same."""
    other = msgspec.structs.replace(one, **{field: getattr(donor, field)})
    before, after = (
        canonical.dumps(without_nulls(msgspec.to_builtins(getattr(settings, field))))
        for settings in (one, other)
    )
    assert differences(one, one) == []
    found = differences(one, other)
    assert all(line.startswith(field) for line in found)
    assert (found == []) is (before == after or field == "transport")


def without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: without_nulls(item) for key, item in value.items() if item is not None}
