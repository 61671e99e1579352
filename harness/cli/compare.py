"""`harness diff`."""

from __future__ import annotations

import json

import click
import msgspec

from harness.cli.common import emit, json_option, open_store, store_option


@click.command()
@click.argument("run_a")
@click.argument("run_b")
@store_option
@json_option
def diff(run_a: str, run_b: str, store_path: str, as_json: bool) -> None:
    """Compare RUN_B with RUN_A: flips, where they part, cost, and whether it is luck."""
    from harness.comparing import compare, lines

    found = compare(open_store(store_path), run_a, run_b)
    if as_json:
        emit(json.dumps(msgspec.to_builtins(found)))
        return
    for line in lines(found):
        emit(line)
