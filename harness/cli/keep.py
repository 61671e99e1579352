"""`harness verify`, `rm`, `clean`: the state of a store and of this machine."""

from __future__ import annotations

import sys

import click

from harness.cli.common import emit, open_store, store_option


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@store_option
def verify(runs: tuple[str, ...], store_path: str) -> None:
    """Check every file that RUNs (default: the whole store) stand on. Exits 1 on damage."""
    from harness.verifying import verify_store

    store = open_store(store_path)
    problems = 0
    for line, bad in verify_store(store, runs):
        problems += bad
        emit(line)
    sys.exit(1 if problems else 0)


@click.command()
@click.argument("run")
@store_option
def rm(run: str, store_path: str) -> None:
    """Remove RUN and its unfinished recordings. Its cassettes go with the next `harness gc`."""
    store = open_store(store_path)
    with store.exclusive():
        store.read_run(run)
        store.remove_run(run)
    emit(f"removed run {run}")


@click.command()
@click.option("--all-ours", is_flag=True, help="Also containers whose owner still runs.")
def clean(all_ours: bool) -> None:
    """Remove containers of ours that were left behind by a harness that is gone."""
    from harness.live.docker_engine import clean as clean_containers

    removed = clean_containers(all_ours=all_ours)
    for container in removed:
        emit(f"removed {container}")
    emit(f"{len(removed)} containers removed")
