"""Diff: two runs beside each other: which verdicts flip, where they part, whether it is luck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from harness.cassette import Tape, read_cassette
from harness.difference import shorten
from harness.errors import DamageError, UsageError
from harness.parting import Parting, part
from harness.records import Usage, Verdict
from harness.runfile import Entry, RunFile, differences, read_run
from harness.store import Store
from harness.terminal import printable

LISTED = 5
SHOWN = 10
"""Partings that are printed one by one."""
"""Of a long list, so many are named."""
ENOUGH = 6
"""Below so many changed samples even the best result, all for one run, has p > 0.05."""


class Pair(msgspec.Struct, kw_only=True):
    """One sample and epoch in both runs."""

    task_id: str
    epoch: int
    level: int
    verdict_a: Verdict
    verdict_b: Verdict
    answer_changed: bool = False
    same_trajectory: bool = False
    """Whether all that the loop did and read is the same, to the last byte."""
    alike: bool = False
    """Whether the two part nowhere; not so where a cassette is damaged."""
    parting: Parting | None = None
    steps: int = 0
    """Model turns of B beyond A's."""
    tokens: int = 0
    """Input and output tokens of B beyond A's."""
    seconds: float = 0.0
    """Live time of B beyond A's."""

    @property
    def flips(self) -> bool:
        """Whether the verdicts differ."""
        return self.verdict_a != self.verdict_b


class Luck(msgspec.Struct, kw_only=True):
    """Whether the difference in accuracy is more than luck; as `luck` computes it."""

    better: int
    """Samples that B has right more often than A."""
    worse: int
    p_value: float
    interval: tuple[float, float]
    """95 % interval of the difference in accuracy, B minus A."""


class Comparison(msgspec.Struct, kw_only=True):
    """Two runs; the fields are those of `harness diff --json`."""

    a: str
    b: str
    settings: list[str]
    """The settings that differ, as `field: a → b`."""
    pairs: list[Pair]
    only_a: list[str]
    only_b: list[str]
    """What is recorded in one of the two only."""
    accuracy_a: float | None
    accuracy_b: float | None
    """Over the pairs; None when one of them is not scored."""
    significance: Luck | None
    """None when nothing was scored, or when the library is not installed."""
    damage: list[str] = []

    @property
    def changed(self) -> bool:
        """Whether an answer or a verdict differs."""
        return any(pair.flips or pair.answer_changed for pair in self.pairs)


def compare(store: Store, name_a: str, name_b: str) -> Comparison:
    """Compare run B with run A, sample by sample, by what was recorded.

    Raises UsageError when they are over different data sets or have no recorded sample in common.
    A damaged cassette is told in `damage`; the others are compared.
    """
    a, b = read_run(store, name_a), read_run(store, name_b)
    if a.dataset.digest != b.dataset.digest:
        raise UsageError(
            f"runs {name_a!r} and {name_b!r} are over different data sets "
            f"({a.dataset.id} {a.dataset.digest[:19]}, {b.dataset.id} {b.dataset.digest[:19]})"
        )
    in_a, in_b = _recorded(a), _recorded(b)
    shared = [key for key in in_a if key in in_b]
    if not shared:
        raise UsageError(f"runs {name_a!r} and {name_b!r} have no recorded sample in common")
    damage: list[str] = []
    pairs = [_pair(store, (a, b), (in_a[key], in_b[key]), damage) for key in shared]
    verdicts_a = [pair.verdict_a for pair in pairs]
    verdicts_b = [pair.verdict_b for pair in pairs]
    scored = "unscored" not in (*verdicts_a, *verdicts_b)
    return Comparison(
        a=name_a,
        b=name_b,
        settings=differences(a.settings, b.settings),
        pairs=pairs,
        only_a=[f"{task} epoch {epoch}" for task, epoch in in_a if (task, epoch) not in in_b],
        only_b=[f"{task} epoch {epoch}" for task, epoch in in_b if (task, epoch) not in in_a],
        accuracy_a=_accuracy(verdicts_a) if scored else None,
        accuracy_b=_accuracy(verdicts_b) if scored else None,
        significance=luck(pairs) if scored else None,
        damage=damage,
    )


def _recorded(run: RunFile) -> dict[tuple[str, int], Entry]:
    return {(entry.task_id, entry.epoch): entry for entry in run.samples if entry.cassette}


def _accuracy(verdicts: Sequence[Verdict]) -> float:
    return sum(verdict == "right" for verdict in verdicts) / len(verdicts)


def _pair(
    store: Store, runs: tuple[RunFile, RunFile], entries: tuple[Entry, Entry], damage: list[str]
) -> Pair:
    old, new = entries
    pair = Pair(
        task_id=old.task_id,
        epoch=old.epoch,
        level=old.level,
        verdict_a=old.verdict,
        verdict_b=new.verdict,
        steps=new.steps - old.steps,
        tokens=_tokens(new.usage) - _tokens(old.usage),
        seconds=round(new.seconds - old.seconds, 3),
    )
    if old.cassette == new.cassette:  # as in a fork: one and the same recording
        pair.alike = pair.same_trajectory = True
        return pair
    try:
        tapes = _tape(store, runs[0], old), _tape(store, runs[1], new)
        pair.parting = part(
            *tapes,
            settings=(runs[0].settings.loop, runs[1].settings.loop),
            names=(runs[0].name, runs[1].name),
        )
    except DamageError as error:
        damage.append(str(error))
        return pair
    ends = [tape.end for tape in tapes if tape.end is not None]
    pair.same_trajectory = ends[0].trajectory == ends[1].trajectory
    pair.answer_changed = ends[0].answer != ends[1].answer
    pair.alike = pair.parting is None
    return pair


def _tape(store: Store, run: RunFile, entry: Entry) -> Tape:
    assert entry.cassette is not None
    what = entry.what(run.name)
    return read_cassette(store, entry.cassette, what)


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


# -------------------------------------------------------------------------------------------- luck


def luck(pairs: Sequence[Pair]) -> Luck | None:
    """Is the difference in accuracy more than luck? None when scipy is not installed.

    The unit is the sample, its epochs averaged: attempts at one question are no independent
    evidence. The test is the exact sign test on the samples that changed (two-sided binomial,
    `scipy.stats.binomtest`), which with one epoch is McNemar's exact test.

    The interval is that of a t test on the differences per sample (`scipy.stats.ttest_1samp`)
    after two imagined samples are added, one that B and one that A has right alone: the adjustment
    of Bonett and Price for paired proportions (2012, J. Educational and Behavioral Statistics
    37(4)). Without them it is not honest where few samples change: with 26 samples, and true rates
    of change from 0 to 30 % each way, what it calls 95 % is 23 % at worst, and without any change
    it has no width. With them it is 96 % at worst (95 % and 94 % for 165 and 53 samples). It can
    exclude 0 where the test, which is the stricter of the two, has a p just above 0.05.
    """
    try:
        from scipy import stats
    except ImportError:
        return None
    right: dict[str, list[int]] = {}
    for pair in pairs:
        change = (pair.verdict_b == "right") - (pair.verdict_a == "right")
        right.setdefault(pair.task_id, []).append(change)
    better = sum(sum(changes) > 0 for changes in right.values())
    worse = sum(sum(changes) < 0 for changes in right.values())
    changed = better + worse
    means = [sum(changes) / len(changes) for changes in right.values()]
    interval = stats.ttest_1samp([*means, 1.0, -1.0], 0.0).confidence_interval(0.95)
    return Luck(
        better=better,
        worse=worse,
        p_value=float(stats.binomtest(better, changed).pvalue) if changed else 1.0,
        interval=(max(-1.0, float(interval.low)), min(1.0, float(interval.high))),
    )


# ------------------------------------------------------------------------------------- for people


def lines(found: Comparison) -> Iterator[str]:
    """A comparison for people. The words where two samples part may be of question or answer."""
    pairs = found.pairs
    yield printable(f"{found.a} → {found.b}: {len(pairs)} samples x epochs in both")
    for name, only in ((found.a, found.only_a), (found.b, found.only_b)):
        if only:
            more = " …" if len(only) > LISTED else ""
            yield printable(
                f"NOTE: the lists differ: {len(only)} recorded only in {name}: "
                f"{', '.join(only[:LISTED])}{more}"
            )
    for setting in found.settings:
        yield printable(f"setting {setting}")
    flips = [pair for pair in pairs if pair.flips]
    answers = [pair for pair in pairs if pair.answer_changed and not pair.flips]
    alike = sum(pair.alike for pair in pairs)
    yield f"{alike} alike throughout, {len(flips)} verdicts flip, {len(answers)} other answers"
    for pair in flips:
        yield printable(f"  {_name(pair)}  {pair.verdict_a} → {pair.verdict_b}")
    for pair in answers:
        yield printable(f"  {_name(pair)}  another answer, also {pair.verdict_b}")
    yield from _partings(pairs)
    yield (
        f"cost: {sum(pair.steps for pair in pairs):+d} steps, "
        f"{sum(pair.tokens for pair in pairs):+d} tokens, "
        f"{sum(pair.seconds for pair in pairs):+.1f} s live"
    )
    yield from _verdict(found)


def _name(pair: Pair) -> str:
    return f"{pair.task_id} epoch {pair.epoch}  level {pair.level}"


def _partings(pairs: Sequence[Pair]) -> Iterator[str]:
    parted = [(pair, pair.parting) for pair in pairs if pair.parting is not None]
    if parted:
        places = Counter(
            "the end" if place.what == "end" else f"step {place.step} ({place.kind} {place.what})"
            for _, place in parted
        )
        counts = [f"{count} at {name}" for name, count in places.most_common(LISTED)]
        yield f"where they part: {', '.join(counts)}{' …' if len(places) > LISTED else ''}"
    for pair, place in parted[:SHOWN]:
        yield printable(
            f"  {pair.task_id} epoch {pair.epoch}  step {place.step} (effect {place.effect}, "
            f"{place.kind})  {place.what} {place.path}  {shorten(place.words, 100)}".rstrip()
        )
    if len(parted) > SHOWN:
        yield f"  ({len(parted) - SHOWN} more: --json)"


def _verdict(found: Comparison) -> Iterator[str]:
    if found.accuracy_a is None or found.accuracy_b is None:
        yield "accuracy: n/a (unscored samples)"
        return
    delta = found.accuracy_b - found.accuracy_a
    yield f"accuracy: {found.accuracy_a:.4g} → {found.accuracy_b:.4g} ({delta:+.4g})"
    test = found.significance
    if test is None:
        yield "is it luck? pip install 'gaia-harness[stats]' to have it tested"
        return
    if not test.better + test.worse:
        yield "is it luck? no verdict changed between right and not right: there is nothing to test"
        return
    told = "more than luck" if test.p_value < 0.05 else "it may be luck"
    if test.better + test.worse < ENOUGH:
        told += f" (fewer than {ENOUGH} changed samples cannot tell)"
    low, high = test.interval
    yield (
        f"is it luck? {test.better} samples better, {test.worse} worse: exact sign test "
        f"p = {test.p_value:.3g}, 95 % interval of the difference {low:+.3f} … {high:+.3f}: {told}"
    )
