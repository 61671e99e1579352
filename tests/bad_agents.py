"""Loops that are wrong, or other than ours, each in one way."""

from __future__ import annotations

import random
from typing import Any

from harness import dialogue
from harness.records import BashRequest, ModelRequest, Sample, Settings, ValueRequest
from harness.world import World


def plain(sample: Sample, world: World, settings: Settings) -> str | None:
    """A loop of a user's: plain lists and dicts, three commands, the last output is the answer."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": sample.question}]
    for turn in range(3):
        reply = world.perform(ModelRequest(messages, [dialogue.BASH_TOOL], settings.params))
        output = world.perform(BashRequest(f"echo {turn}", settings.command_timeout))
        messages += [
            {"role": "assistant", "content": reply.content or ""},
            {"role": "user", "content": output.stdout.decode()},
        ]
    return sample.task_id


def other_third_command(sample: Sample, world: World, settings: Settings) -> str | None:
    """`plain`, but for its third command."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": sample.question}]
    for turn in range(3):
        reply = world.perform(ModelRequest(messages, [dialogue.BASH_TOOL], settings.params))
        command = f"echo {turn}" if turn < 2 else "echo something else"
        output = world.perform(BashRequest(command, settings.command_timeout))
        messages += [
            {"role": "assistant", "content": reply.content or ""},
            {"role": "user", "content": output.stdout.decode()},
        ]
    return sample.task_id


def other_for_b(sample: Sample, world: World, settings: Settings) -> str | None:
    """`plain`, but for the third command of sample b."""
    return (other_third_command if sample.task_id == "b" else plain)(sample, world, settings)


def random_on_the_sly(sample: Sample, world: World, settings: Settings) -> str | None:
    """Hidden randomness: it cannot follow its own cassette."""
    world.perform(BashRequest(f"echo {random.random()}", settings.command_timeout))
    return "x"


def random_through_the_world(sample: Sample, world: World, settings: Settings) -> str | None:
    """The same, with the randomness where it is recorded."""
    number = world.perform(ValueRequest("random", random.random))
    world.perform(BashRequest(f"echo {number}", settings.command_timeout))
    return "x"


def raises(sample: Sample, world: World, settings: Settings) -> str | None:
    """Code that breaks after one command."""
    world.perform(BashRequest("echo 1", settings.command_timeout))
    raise KeyError("no such thing")


def swallows(sample: Sample, world: World, settings: Settings) -> str | None:
    """Catches whatever the world raises, and answers all the same."""
    try:
        world.perform(BashRequest("echo 1", settings.command_timeout))
        world.perform(BashRequest("echo 2", settings.command_timeout))
    except Exception:
        return "never mind"
    return "fine"


def answers_twice(sample: Sample, world: World, settings: Settings) -> str | None:
    """Makes the same requests as `plain`, and answers otherwise."""
    plain(sample, world, settings)
    return "another answer"
