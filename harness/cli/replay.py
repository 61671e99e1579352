"""`harness replay`."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import click

from harness.cli.common import (
    Stopped,
    emit,
    json_option,
    open_store,
    price_option,
    repeated,
    runs_or_all,
    say,
    store_option,
)
from harness.cli.options import (
    limit_changes,
    loop_changes,
    mcp_servers,
    sandbox_changes,
    shared_options,
)
from harness.errors import UsageError
from harness.records import MATCH_PARTS
from harness.store import Store

if TYPE_CHECKING:
    from harness.costs import Price
    from harness.dataset import Dataset
    from harness.replaying import ReplayOptions

ONCE = {
    "task_ids", "match_on", "on_divergence", "plan", "new_name", "scorer", "as_json", "jobs",
    "price",
}  # fmt: skip
"""Options of a replay that the next command does not take over."""


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@store_option
@json_option
@click.option("--task-id", "task_ids", multiple=True, metavar="ID", help="Only this sample.")
@click.option(
    "--match-on",
    default=",".join(MATCH_PARTS),
    show_default=True,
    metavar="PARTS",
    help="What of a model request must be as recorded.",
)
@click.option(
    "--on-divergence",
    type=click.Choice(["fail", "fork"]),
    default="fail",
    show_default=True,
    help="Stop a sample where it leaves its tape, or go on live from there.",
)
@click.option("--plan", is_flag=True, help="Say what a fork would do and cost at most, and stop.")
@click.option("--as", "new_name", metavar="NAME", help="Save a fork or a loose replay as a run.")
@click.option("--model", metavar="NAME", help="Another model than the recorded one.")
@shared_options
@click.option("--scorer", metavar="MODULE:NAME", help="Another scorer than the official one.")
@click.option("--dataset", metavar="mini|DIR", help="Where the truths and attachments are.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@price_option
def replay(
    runs: tuple[str, ...],
    store_path: str,
    as_json: bool,
    match_on: str,
    on_divergence: str,
    plan: bool,
    new_name: str | None,
    dataset: str | None,
    jobs: int,
    price: Price | None,
    **given: Any,
) -> None:
    """Re-run the loop from the cassettes of RUNs (default: all): no container, network or key.

    Exits 1 when a sample diverges, ends otherwise than it did, or is damaged. A fork exits 0, or
    4 when samples ended in error.
    """
    from harness.replaying import ReplayOptions

    parts = tuple(part.strip() for part in match_on.split(",") if part.strip())
    if not parts or not set(parts) <= set(MATCH_PARTS):
        raise UsageError(f"--match-on takes some of {', '.join(MATCH_PARTS)}; not {match_on!r}")
    loop = loop_changes(given)
    if given["model"]:
        loop["model"] = given["model"]
    store = open_store(store_path)
    data = None
    if dataset is not None:
        from harness.config import load_dataset

        data = load_dataset(dataset, progress=say)
    options = ReplayOptions(
        match_on=parts,
        task_ids=given.pop("task_ids"),
        loop=loop,
        agent=given.pop("agent"),
        scorer=given.pop("scorer"),
        told=repeated(click.get_current_context(), ONCE),
    )
    if on_divergence == "fork" or new_name or plan:
        if len(runs) != 1:
            raise UsageError("a fork or a saved replay is of one run: harness replay RUN …")
        if new_name is None and not plan:
            raise UsageError("a fork needs a name for the new run", hint="--as NAME")
        fork_options = {"plan": plan, "live": on_divergence == "fork", "as_json": as_json}
        sys.exit(_fork(store, runs[0], new_name, options, data, given, **fork_options))
    names = runs_or_all(store, runs)
    sys.exit(_replay(store, names, options, data, jobs, price, as_json=as_json))


def _replay(
    store: Store,
    names: list[str],
    options: ReplayOptions,
    data: Dataset | None,
    jobs: int,
    price: Price | None,
    *,
    as_json: bool,
) -> int:
    from harness.costs import total
    from harness.report import table, to_json
    from harness.sharing import replay_runs

    began, count, costs = time.monotonic(), 0, []
    failed, stopped = False, Stopped()
    for done in replay_runs(store, names, options, dataset=data, jobs=jobs, progress=say):
        if done.report is None:
            stopped.add(done.problem or "", done.status)
            continue
        if done.report.cost is not None:
            costs.append(done.report.cost)
            done.report.cost = done.report.cost.at(price)
        count += sum(result.status != "missing" for result in done.report.samples)
        emit(to_json(done.report) if as_json else f"{done.name}\n{table(done.report)}\n")
        for finding in done.findings:
            say(finding)
        left = [r for r in done.report.samples if r.identical is False]
        if set(options.match_on) != set(MATCH_PARTS):  # never identical; what counts is to follow
            left = [r for r in left if r.divergence is not None]
        failed = failed or bool(done.findings or left)
    if count:
        took = time.monotonic() - began
        say(f"{count} samples in {took:.2f} s; recorded live in {total(costs).at(price)}")
    return stopped.status(failed)


def _fork(
    store: Store,
    name: str,
    new_name: str | None,
    options: ReplayOptions,
    data: Dataset | None,
    given: dict[str, Any],
    *,
    plan: bool,
    live: bool,
    as_json: bool,
) -> int:
    from harness import forking
    from harness.cli.record import carry_out, connect
    from harness.config import (
        Changes,
        changed_settings,
        dataset_of,
        endpoint,
        mcp_secrets,
        parse_generation,
        refuse_secrets,
    )
    from harness.opening import RecordConfig
    from harness.runfile import imported_from, read_run

    source = read_run(store, name)
    if tool := imported_from(source):
        raise UsageError(
            f"run {name!r} was imported from {tool}: its requests are another loop's, and nothing "
            "can go on from them",
            hint=f"harness replay {name}",
        )
    docker_image = given["docker_image"]
    changes = Changes(
        loop=options.loop,
        generation=parse_generation(given.pop("generation")),
        agent=options.agent,
        sandbox=sandbox_changes(given),
        limits=limit_changes(given),
        eval_batch_size=given["eval_batch_size"],
    )
    settings = changed_settings(source.settings, changes)
    config = RecordConfig(
        run=new_name or "unnamed",
        settings=settings,
        dataset=data,
        source=source.dataset.source,
        eval_batch_size=settings.transport["eval_batch_size"],
        on_drift=given["on_drift"] or "hard",
    )
    planned = forking.plan(
        store, source, config, task_ids=options.task_ids, match_on=options.match_on
    )
    if plan:
        for line in forking.plan_lines(planned):
            emit(line)
        return 0
    if live and any(item.live for item in planned):
        config.dataset = data or dataset_of(source, progress=say)
        api_url = given["api_url"] or source.settings.transport.get("api_url")
        config.api_url, config.api_key = endpoint(api_url, given["api_key_env"])
        config.mcp = mcp_servers(given)
        if source.tools and not config.mcp:
            raise UsageError(
                f"run {name!r} uses MCP servers: going on live needs them", hint="--mcp FILE.json"
            )
        config.secrets = (
            *((config.api_key,) if config.api_key else ()),
            *mcp_secrets(config.mcp),
        )
        refuse_secrets(config)

    def work(progress: Any, stop: threading.Event) -> Any:
        return forking.fork(
            store,
            source,
            config,
            planned,
            connect=connect,
            progress=progress,
            match_on=options.match_on,
            live=live,
            other_image=docker_image is not None,
            stop=stop,
        )

    status = carry_out(work, as_json=as_json, ignore_errors=given["ignore_errors"])
    if status == 0 and not live and not all(item.follows for item in planned):
        for item in planned:
            if item.divergence is not None:
                say(item.divergence.text())
        return 1
    return status
