"""`harness diff`."""

from __future__ import annotations

import json
import sys

import click
import msgspec

from harness.cli.common import emit, json_option, open_store, say, store_option


@click.command()
@click.argument("run_a")
@click.argument("run_b")
@store_option
@json_option
@click.option("--exit-code", is_flag=True, help="Exit 1 when an answer or a verdict differs.")
def diff(run_a: str, run_b: str, store_path: str, as_json: bool, exit_code: bool) -> None:
    """Compare RUN_B with RUN_A as they were recorded: flips, where they part, cost, luck.

    Exits 0 whatever differs, unless --exit-code is given; 1 when a cassette is damaged.
    """
    from harness.comparing import compare, lines

    found = compare(open_store(store_path), run_a, run_b)
    if as_json:
        emit(json.dumps(msgspec.to_builtins(found), allow_nan=False))
    else:
        for line in lines(found):
            emit(line)
    for damage in found.damage:
        say(f"error: {damage}")
    sys.exit(1 if found.damage or (exit_code and found.changed) else 0)
