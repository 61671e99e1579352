"""docs/parameters.md and docs/prompts.md say what the code does: options, defaults, texts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from harness import dialogue
from harness.agent import react
from harness.api import (
    _FIELDS,
    NativeAgentConfig,
    _DatasetArgs,
    _ExtraParams,
    _Sandbox,
    _SandboxDefaults,
)
from harness.cli import cli
from harness.config import _PARAMS, _TRANSPORT, RecordOptions, record_config
from harness.live.sandbox import SandboxConfig
from harness.records import (
    VERDICTS,
    BashReply,
    BashRequest,
    ModelReply,
    Request,
    Sample,
    Settings,
    ToolCall,
)
from harness.runfile import differences
from harness.world import ScriptedWorld
from tests.doc_examples import ROOT, blocks

DOCS = ROOT / "docs"


def section(page: str, title: str) -> str:
    """The text under a heading, up to the next one."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^##+ {re.escape(title)}$(.*?)(?=^#|\Z)", text, re.M | re.S)
    assert found, f"{page} has no heading {title!r}"
    return found[1]


def rows(page: str, title: str) -> list[list[str]]:
    """The body rows of the tables under a heading."""
    lines = [line for line in section(page, title).splitlines() if line.startswith("|")]
    cells = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
    ]
    heads = [at for at, row in enumerate(cells) if set("".join(row)) <= set("-: ")]
    skip = {at for head in heads for at in (head - 1, head)}
    return [row for at, row in enumerate(cells) if at not in skip]


def table(page: str, title: str) -> dict[str, list[str]]:
    """By the first column, without its backticks."""
    return {row[0].strip("`"): row[1:] for row in rows(page, title)}


# ------------------------------------------------------------------------------ the command line


def options_of(command: str) -> dict[str, click.Option]:
    with click.Context(cli) as context:
        found = cli.get_command(context, command)
    assert found is not None
    return {
        "/".join([max(option.opts, key=len), *option.secondary_opts]): option
        for option in found.params
        if isinstance(option, click.Option)
    }


def type_of(option: click.Option) -> str:
    if option.is_flag:
        return "switch"
    if isinstance(option.type, click.Choice):
        return " or ".join(f"`{choice}`" for choice in option.type.choices)
    kinds = {"integer": "whole number", "integer range": "whole number", "float range": "number"}
    return kinds.get(option.type.name, "file" if option.type.name == "file" else "text")


def default_of(option: click.Option) -> Any:
    """From where the default is kept, which is not the option where `replay` shares it."""
    for name, owner in (
        ("mcp_file", None), ("generation", None), ("prompt_template", None),
        *((name, Settings) for name in ("max_steps", "command_timeout", "max_output_chars",
                                        "context_limit", "send_reasoning")),
        ("sandbox", SandboxConfig), ("docker_image", SandboxConfig),
        *((name, SandboxConfig) for name in ("network", "memory", "cpus", "pids_limit")),
        ("agent", RecordOptions), ("eval_batch_size", RecordOptions),
    ):  # fmt: skip
        if option.name == name:
            if owner is None:
                return None
            field = {"sandbox": "kind", "docker_image": "image"}.get(name, name)
            return fields_of(owner)[field]
    return False if option.is_flag else option.default


def fields_of(struct: Any) -> dict[str, Any]:
    found = {}
    for field in msgspec.structs.fields(struct):
        default = field.default
        if default is msgspec.NODEFAULT:
            factory = field.default_factory
            default = None if factory is msgspec.NODEFAULT else factory()
        found[field.name] = default
    return found


def told(default: Any) -> str:
    """A default as the tables write it."""
    if default is None or "UNSET" in repr(default):  # click's word for no default
        return "—"
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, float):
        return f"{default:g}"
    return f"`{default}`" if isinstance(default, str) else str(default)


RECORD = table("parameters.md", "The options of `record`")


def test_every_option_of_record_is_there_with_its_type_and_default() -> None:
    options = options_of("record")
    assert list(RECORD) == [name for name in options if name != "--help"]
    for name, (kind, default, *_rest) in RECORD.items():
        assert kind.startswith(type_of(options[name])), f"{name}: {type_of(options[name])}"
        assert ("repeatable" in kind) == options[name].multiple, name
        if name not in ("--run", "--model", "--store"):
            assert default == told(default_of(options[name])), name


def test_every_option_of_replay_is_there() -> None:
    """Those of its own in a table; the others are `record`'s, with the run's as default."""
    own = table("parameters.md", "The options of `replay`")
    shared = set(options_of("record"))
    options = {name: o for name, o in options_of("replay").items() if name != "--help"}
    described = {name for name in options if name in own}
    assert described >= {name for name in options if name not in shared}
    assert set(own) <= set(options)
    for name in described:
        kind, default, *_rest = own[name]
        assert kind.startswith(type_of(options[name])), name
        assert default == told(default_of(options[name])), name


# ------------------------------------------------------------------------ what an option is part of

OTHER: dict[str, Any] = {
    "--model": {"model": "other"},
    "--max-steps": {"max_steps": 3},
    "--command-timeout": {"command_timeout": 9.0},
    "--max-output-chars": {"max_output_chars": 100},
    "--context-limit": {"context_limit": 900},
    "--send-reasoning/--no-send-reasoning": {"send_reasoning": True},
    "--prompt-template": {"prompt_template": "Please: {question}"},
    "--agent": {"agent": "tests.test_parameters:other_loop"},
    "-g": {"generation": {"temperature": 0.5}},
    "--sandbox": {"sandbox": {"kind": "local"}},
    "--docker-image": {"sandbox": {"image": "other"}},
    "--network/--no-network": {"sandbox": {"network": False}},
    "--memory": {"sandbox": {"memory": "1g"}},
    "--cpus": {"sandbox": {"cpus": 1.0}},
    "--pids-limit": {"sandbox": {"pids_limit": 9}},
    "--sample-seconds": {"sample_seconds": 9.0},
    "--sample-tokens": {"sample_tokens": 9},
    "--run-tokens": {"run_tokens": 9},
    "--api-url": {"api_url": "http://127.0.0.1:10/v1"},
    "--eval-batch-size": {"eval_batch_size": 9},
    "--ignore-errors": {"ignore_errors": True},
    "--on-drift": {"on_drift": "warn"},
    "--no-wire": {"wire": False},
    "--retry-errors": {"retry_errors": True},
    "--overwrite": {"overwrite": True},
    "--subset": {"subsets": ("2023_level1",)},
    "--task-id": {"task_ids": ("569f783e-2350-52e0-b337-47a8d5cae625",)},
    "--limit": {"limit": 1},
    "--shuffle-seed": {"shuffle_seed": 1},
    "--epochs": {"epochs": 2},
}
"""Another value for each option; those that name data, places and outputs are not tried."""


def other_loop(sample: Any, world: Any, settings: Any) -> str | None:
    return None


def settings_differ(change: dict[str, Any]) -> bool:
    base = RecordOptions(run="r", model="m", dataset="mini", api_url="http://127.0.0.1:9/v1")
    old = record_config(base)
    new = record_config(msgspec.structs.replace(base, **change))
    return bool(differences(old.settings, new.settings))


def requests_of(settings: Settings) -> list[str]:
    """Digests of what the loop asks in a sample with long outputs and reasoning."""
    found = []

    def perform(request: Request) -> Any:
        found.append(request.digest(settings.model))
        if isinstance(request, BashRequest):
            return BashReply(stdout=b"0123456789\n" * 200)
        call = ToolCall("c", "bash", '{"command": "look"}')
        if len(found) > 10:
            call = ToolCall("c", "submit", '{"answer": "x"}')
        return ModelReply(content="so", reasoning="why", tool_calls=(call,))

    react(Sample(task_id="t", question="?", level=1), ScriptedWorld(perform), settings)
    return found


@pytest.mark.parametrize("name", OTHER)
def test_what_an_option_is_part_of(name: str) -> None:
    """`request`: a replay with another value leaves its tape. `settings`: another run."""
    *_, part, _meaning = RECORD[name]
    change = OTHER[name]
    assert settings_differ(change) == (part in ("request", "settings")), part
    fields = {key: value for key, value in change.items() if key in Settings.__struct_fields__}
    if "generation" in change:
        fields = {"params": change["generation"]}
    if fields:
        base = Settings(model="m")
        asked = requests_of(base), requests_of(msgspec.structs.replace(base, **fields))
        shorter = name == "--max-steps"  # it never enters a request; it ends the loop
        assert (asked[0] != asked[1]) == (part == "request" or shorter), part
        assert not shorter or asked[0][: len(asked[1])] == asked[1]


def test_each_option_has_its_part() -> None:
    assert {row[-2] for row in RECORD.values()} == {"request", "settings", "data", "—"}
    untried = set(RECORD) - set(OTHER)
    assert {RECORD[name][-2] for name in untried} <= {"request", "data", "—"}


# ------------------------------------------------------------------------------------------ Python


@pytest.mark.parametrize(
    ("title", "fields"),
    [
        ("TaskConfig", _FIELDS),
        ("`dataset_args['gaia']`", fields_of(_DatasetArgs)),
        ("`extra_params`", fields_of(_ExtraParams)),
        ("`agent_config`", fields_of(NativeAgentConfig)),
        ("`sandbox`", fields_of(_Sandbox)),
        ("`sandbox['default_config']`", fields_of(_SandboxDefaults)),
    ],
)
def test_every_field_is_there(title: str, fields: dict[str, Any]) -> None:
    found = table("parameters.md", title)
    assert list(found) == list(fields)
    for name, default in fields.items():
        if default is not None and default not in ((), {}) and default != ("gaia",):
            assert told(default) in found[name][1], name


def test_every_generation_option_is_there_with_its_types() -> None:
    found = table("parameters.md", "`-g KEY=VALUE`, `generation_config`")
    types: dict[str, Sequence[type]] = {**_PARAMS, **_TRANSPORT, "stream": (bool,)}
    assert set(found) == set(types)
    words = {bool: "true or false", dict: "object", int: "whole number"}
    for name, (kind, _default, part, _meaning) in found.items():
        expected = "number" if float in types[name] else words[types[name][0]]
        assert kind.startswith(expected), name
        request = "request" if name in _PARAMS else "settings" if name == "stream" else "—"
        assert part == request, name
        change = {name: {"x": 1} if types[name][0] is dict else types[name][0](1)}
        assert settings_differ({"generation": change}) == (part != "—"), name


# ----------------------------------------------------------------------------------------- prompts


def quoted(language: str) -> list[str]:
    return [block.text for block in blocks(DOCS / "prompts.md") if block.language == language]


def test_the_prompts_are_those_of_the_loop() -> None:
    page = (DOCS / "prompts.md").read_text(encoding="utf-8")
    assert quoted("text") == [
        text + "\n" for text in (dialogue.SYSTEM_PROMPT, dialogue.USER_TEMPLATE, dialogue.REMINDER)
    ]
    assert [json.loads(text) for text in quoted("json")] == [
        [dialogue.BASH_TOOL, dialogue.SUBMIT_TOOL]
    ]
    assert f"`{dialogue.FILE_NOTE}`" in page
    for cause in (
        dialogue.bash_text(BashReply(exit_code=2), 5, 9),
        dialogue.bash_text(BashReply(), 5, 9),
        dialogue.bash_text(BashReply(timed_out=True, exit_code=None), 180.0, 9),
        dialogue.error_text("…"),
        "[stderr]",
        "[error]",
    ):
        assert f"`{cause}`" in page, cause
    cut = dialogue.cut("a" * 1000, 10)
    assert f"`{cut.splitlines()[1].replace('990', 'N')}`" in page
    assert f"{dialogue.SHORTENED} characters" in page


def test_the_words_of_the_verdicts_page() -> None:
    assert list(table("verdicts.md", "Verdicts"))[:8] == list(VERDICTS)
    assert [row[0] for row in rows("verdicts.md", "Exit status")] == [
        "0", "1", "2", "3", "4", "130",
    ]  # fmt: skip


def test_the_kinds_of_errors_of_the_verdicts_page() -> None:
    from harness.errors import SampleError

    kinds = {cls.kind for cls in SampleError.__subclasses__()}
    assert set(table("verdicts.md", "Verdicts")) - set(VERDICTS) == kinds


def test_this_page_is_read(tmp_path: Path) -> None:
    """The parser finds what is there: else the checks above would hold of an empty page."""
    assert len(RECORD) > 30
    assert RECORD["--max-steps"][:2] == ["whole number, model turns", "50"]
