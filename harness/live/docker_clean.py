"""Labels that say whose a container is, and the removal of what nobody owns any more."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from harness.errors import LackError
from harness.live.docker_client import connect, engine_errors, is_engine_error
from harness.live.owner import Owner, clean_scratch
from harness.records import Sample

_PREFIX = "gaia-harness."
_PROJECT = f"{_PREFIX}project=gaia-harness"


class CleanedContainer(msgspec.Struct, frozen=True):
    """A container that `clean` removed."""

    id: str
    name: str
    run: str
    sample: str
    epoch: str

    def __str__(self) -> str:
        what = f"sample {self.sample}, epoch {self.epoch}" if self.sample else "a preflight"
        return f"{self.name} (run {self.run}, {what})"


def labels_for(run: str, sample: Sample | None) -> dict[str, str]:
    """The labels of what belongs to this process; `sample` is None for the preflight's trial."""
    values = {
        "project": "gaia-harness",
        "run": run,
        "sample": sample.task_id if sample else "",
        "epoch": str(sample.epoch) if sample else "",
        **msgspec.structs.asdict(Owner.me()),
    }
    return {_PREFIX + key.replace("_", "-"): value for key, value in values.items()}


def clean(all_ours: bool = False) -> list[CleanedContainer]:
    """Remove the containers (volumes, scratch folders) that dead processes of ours left behind.

    A container goes if it has our labels and its owner ran on this host and does not any more.
    One whose owner runs, or cannot be seen from here (another host, another PID namespace),
    stays. `all_ours`: every container with our labels, those of running recordings too.
    LackError when there is no engine.
    """
    connection = connect()
    client = connection.client()
    removed = []
    with engine_errors(connection.host, LackError, "containers cannot be listed"):
        for found in client.containers(all=True, filters={"label": _PROJECT}):
            labels = found.get("Labels") or {}
            if not (all_ours or _is_orphan(labels)):
                continue
            try:
                client.remove_container(found["Id"], force=True, v=True)
            except Exception as error:  # someone else was faster, or removal is under way
                if not is_engine_error(error):
                    raise
                continue
            removed.append(
                CleanedContainer(
                    found["Id"],
                    (found.get("Names") or [""])[0].lstrip("/"),
                    *(labels.get(_PREFIX + key, "") for key in ("run", "sample", "epoch")),
                )
            )
        for volume in client.volumes(filters={"label": _PROJECT})["Volumes"] or ():
            if all_ours or _is_orphan(volume.get("Labels") or {}):
                try:
                    client.remove_volume(volume["Name"])
                except Exception as error:  # in use
                    if not is_engine_error(error):
                        raise
    client.close()
    clean_scratch()
    return removed


def _is_orphan(labels: Mapping[str, str]) -> bool:
    names = {field: _PREFIX + field.replace("_", "-") for field in Owner.__struct_fields__}
    if any(label not in labels for label in names.values()):
        return False
    return Owner(**{field: labels[label] for field, label in names.items()}).state() == "dead"
