"""What a reader of another tool's files hands over, and what an import came to."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from harness.dataset import Dataset
from harness.records import Failure, Outcome, Reply, Request, Sample, Usage, Verdict
from harness.report import RunReport

MAX_EFFECTS = 100_000
"""Of one sample; no evaluation comes near it."""


class ImportedEffect(NamedTuple):
    """One request and its reply, or the failure that ended the sample there."""

    request: Request
    reply: Reply | None
    failure: Failure | None = None
    meta: dict[str, Any] | None = None
    model: str = ""
    """Of a model request: the model's name as the endpoint was given it."""


class ImportedSample(msgspec.Struct, kw_only=True):
    """One sample and epoch as the other tool recorded it."""

    sample: Sample
    """Its `task_id` is the data set's; level 0 where the tool does not say."""
    effects: list[ImportedEffect]
    outcome: Outcome
    last_error: str | None = None
    """`context_exceeded` or `refused`, where that is why there is no answer."""
    verdict: Verdict | None = None
    """The tool's own; None where it gave none."""
    told: str = ""
    """The tool's own verdict in its words, such as `acc 1`."""
    truth: str | None = None
    """As the tool was told; never stored in plain text."""
    usage: Usage | None = None
    """Tokens of the whole sample, where the replies do not say their own."""
    seconds: float = 0.0
    missing: list[str] = []
    """What the tool did not keep of this sample."""
    notes: list[str] = []
    """What had to be decided while it was read: why there is no answer, for example."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The tool that a run comes from, and what it says of the whole run."""

    tool: str
    """As its users write it: `EvalScope`."""
    version: str = ""
    agent: str = ""
    """Its loop, such as `evalscope:react`."""
    missing: tuple[str, ...] = ()
    """What it keeps of no sample."""
    mean_acc: float | None = None
    num: int | None = None
    """The figure of its own report, and over how many samples."""
    details: dict[str, Any] = {}
    """More for the run file's `environment`: dates, images, versions. Nothing private."""

    @property
    def name(self) -> str:
        """Tool and version."""
        return f"{self.tool} {self.version}".strip()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A sample whose verdict is another by our rules than by the tool's own."""

    task_id: str
    epoch: int
    theirs: Verdict | None
    told: str
    """Theirs in their words."""
    ours: Verdict
    why: str


class ImportReport(msgspec.Struct, kw_only=True):
    """What an import came to."""

    source: Source
    report: RunReport
    differences: list[Difference]
    effects: dict[str, int]
    """How many of each kind came over."""
    notes: list[str]
    """One line each; samples by their ids."""
    rescored: int
    """Verdicts that were computed by the official rules."""
    truths: Dataset | None
    """The samples with their truths, to be kept outside of the store; None if none is known."""
