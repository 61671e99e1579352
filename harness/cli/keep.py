"""`harness verify`, `rm`, `gc`, `bundle`, `unbundle`, `clean`: stores, and what was left over."""

from __future__ import annotations

import itertools
import sys

import click

from harness.cli.common import emit, open_store, store_option
from harness.store import Store


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@store_option
@click.option(
    "--wire",
    is_flag=True,
    help="Also make every model reply again from its recorded HTTP exchange (needs vcrpy).",
)
def verify(runs: tuple[str, ...], store_path: str, wire: bool) -> None:
    """Check every file that RUNs (default: the whole store) stand on. Exits 1 on damage."""
    from harness.terminal import printable
    from harness.verifying import verify_store

    store = open_store(store_path)
    for run in runs:
        store.read_run(run)  # a name that is wrong is no damage
    problems = 0
    lines = verify_store(store, runs)
    if wire:
        from harness.interop.wire_proof import prove

        lines = itertools.chain(lines, prove(store, runs))
    for line, bad in lines:
        problems += bad
        emit(printable(line, keep="\n"))
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
@store_option
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def gc(store_path: str, dry_run: bool) -> None:
    """Remove objects that no run and no unfinished recording stands on."""
    from harness.collecting import collect

    names, size = collect(open_store(store_path), dry_run=dry_run)
    for name in names:
        emit(name)
    emit(f"{len(names)} objects, {size} bytes {'would be ' if dry_run else ''}removed")


@click.command()
@click.argument("run")
@store_option
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), metavar="FILE")
def bundle(run: str, store_path: str, output: str) -> None:
    """Write RUN and all that it stands on into one file, for a reviewer."""
    from harness.bundling import write_bundle

    count, size = write_bundle(open_store(store_path), run, output)
    emit(f"{output}: run {run}, {count} objects, {size} bytes")
    emit("do not publish it: cassettes hold the benchmark's questions and the answers given")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@store_option
@click.option("--as", "new_name", metavar="NAME", help="Another name for the run.")
def unbundle(file: str, store_path: str, new_name: str | None) -> None:
    """Take the run in FILE into the store, verified; nothing is taken from a damaged file."""
    from harness.bundling import read_bundle

    run, count = read_bundle(Store(store_path), file, new_name)
    emit(f"run {run}: {count} objects taken")


@click.command()
@click.option("--all-ours", is_flag=True, help="Also containers whose owner still runs.")
def clean(all_ours: bool) -> None:
    """Remove containers of ours that were left behind by a harness that is gone."""
    from harness.live.docker_engine import clean as clean_containers

    removed = clean_containers(all_ours=all_ours)
    for container in removed:
        emit(f"removed {container}")
    emit(f"{len(removed)} containers removed")
