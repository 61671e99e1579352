"""The options that `record` and `replay` share. In a replay each one's default is the run's own."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, TypeVar

import click

from harness.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

LOOP = ("max_steps", "command_timeout", "max_output_chars", "context_limit", "send_reasoning")
SANDBOX = {
    "sandbox": "kind",
    "docker_image": "image",
    "network": "network",
    "memory": "memory",
    "cpus": "cpus",
    "pids_limit": "pids_limit",
}
LIMITS = ("sample_seconds", "sample_tokens", "run_tokens")


class _Positive(click.FloatRange):
    """A positive number; click lets NaN and infinity pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not isfinite(found):
            self.fail(f"{value} is no number to count with.", param, ctx)
        return found


_POSITIVE = _Positive(min=0, min_open=True)

_SHARED = [
    click.option("--max-steps", type=click.IntRange(1), help="Model turns at most. [50]"),
    click.option(
        "--command-timeout", type=_POSITIVE, metavar="SECONDS", help="For one bash command. [180]"
    ),
    click.option(
        "--max-output-chars",
        type=click.IntRange(1),
        help="Characters of one tool output that the model is shown. [16000]",
    ),
    click.option(
        "--context-limit",
        type=click.IntRange(1),
        help="Estimated tokens that the history stays below. [no limit]",
    ),
    click.option(
        "--send-reasoning/--no-send-reasoning",
        default=None,
        help="Whether reasoning_content is sent back to the model. [no]",
    ),
    click.option(
        "--prompt-template",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="The first message, with {question} and {file}.",
    ),
    click.option("--agent", metavar="MODULE:NAME", help="A loop of your own."),
    click.option(
        "-g",
        "generation",
        multiple=True,
        metavar="KEY=VALUE",
        help="temperature, top_p, max_tokens, seed, stream, parallel_tool_calls, timeout, "
        "retries, retry_interval; anything else as extra_body={…}. Repeatable.",
    ),
    click.option(
        "--mcp",
        "mcp_file",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE.json",
        help="MCP servers whose tools the agent is given.",
    ),
    click.option("--api-url", metavar="URL", help="Endpoint. [OPENAI_BASE_URL, then OpenAI]"),
    click.option(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="VAR",
        help="The variable that holds the key. [OPENAI_API_KEY]",
    ),
    click.option(
        "--sandbox",
        type=click.Choice(["docker", "local"]),
        help="local is UNSAFE: commands run on this machine. [docker]",
    ),
    click.option("--docker-image", metavar="IMAGE", help="Image of the sandboxes. [python:3.11]"),
    click.option("--network/--no-network", default=None, help="Network in the sandbox. [yes]"),
    click.option("--memory", metavar="SIZE", help="Memory of a sandbox, such as 2g."),
    click.option("--cpus", type=_POSITIVE, help="Processors of a sandbox."),
    click.option("--pids-limit", type=click.IntRange(1), help="Processes in a sandbox."),
    click.option("--sample-seconds", type=_POSITIVE, help="Live time at most for one sample."),
    click.option("--sample-tokens", type=click.IntRange(1), help="Tokens at most for a sample."),
    click.option("--run-tokens", type=click.IntRange(1), help="Tokens at most for the run."),
    click.option("--eval-batch-size", type=click.IntRange(1), help="Samples in flight. [1]"),
    click.option("--ignore-errors", is_flag=True, help="Exit 0 even if samples ended in error."),
    click.option(
        "--on-drift",
        type=click.Choice(["warn", "fail"]),
        help="When a rebuilt sandbox differs: warn, or fail. [fail if it is more than a text]",
    ),
]


def shared_options(command: F) -> F:
    """The options of the loop, the model, the sandbox and the limits."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


def loop_changes(given: dict[str, Any]) -> dict[str, Any]:
    """The loop's settings among the options, those that were given; they are taken out."""
    changes = {name: value for name in LOOP if (value := given.pop(name)) is not None}
    template = given.pop("prompt_template")
    if template is not None:
        changes["prompt_template"] = read_template(template)
    return changes


def sandbox_changes(given: dict[str, Any]) -> dict[str, Any]:
    """The sandbox's settings among the options, those that were given; they are taken out."""
    return {
        name: value for option, name in SANDBOX.items() if (value := given.pop(option)) is not None
    }


def limit_changes(given: dict[str, Any]) -> dict[str, Any]:
    """The limits among the options, those that were given; they are taken out."""
    return {name: value for name in LIMITS if (value := given.pop(name)) is not None}


def read_template(path: str) -> str:
    """A prompt template's text; UsageError when it is no UTF-8."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no UTF-8 text") from None
    if "{question}" not in text:
        raise UsageError(f"the prompt template {path} lacks {{question}}")
    return text


def mcp_servers(given: dict[str, Any]) -> tuple[Any, ...]:
    """The servers of `--mcp FILE`; it is taken out."""
    path = given.pop("mcp_file")
    if path is None:
        return ()
    from harness.mcp_config import read_mcp_file

    return tuple(read_mcp_file(path))
