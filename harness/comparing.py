"""Diff: two runs beside each other: which verdicts flip, where they part, whether it is luck."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from harness.cassette import AnyEffect, ModelEffect, Tape, read_cassette
from harness.errors import UsageError
from harness.records import Usage, Verdict, reply_digest
from harness.runfile import Entry, RunFile, read_run
from harness.store import Store
from harness.terminal import printable


class Parting(msgspec.Struct, kw_only=True):
    """The first place where two cassettes of one sample are not alike."""

    step: int
    effect: int
    kind: str
    what: str
    """`request`, `reply`, `end`, or `length` when one goes on behind the other's end."""
    path: str = ""
    words: str = ""
    """The differing words, as `[-a-]{+b+}`."""


class Pair(msgspec.Struct, kw_only=True):
    """One sample and epoch in both runs."""

    task_id: str
    epoch: int
    level: int
    verdict_a: Verdict
    verdict_b: Verdict
    answer_changed: bool
    same_trajectory: bool
    parting: Parting | None
    steps: int
    """Model turns of B beyond A's."""
    tokens: int
    seconds: float


class Comparison(msgspec.Struct, kw_only=True):
    """Two runs."""

    a: str
    b: str
    pairs: list[Pair]
    only_a: list[str]
    only_b: list[str]
    accuracy_a: float | None
    accuracy_b: float | None
    """Over the pairs."""
    significance: dict[str, Any] | None
    """None when the library is not installed, or when nothing was scored."""


def compare(store: Store, name_a: str, name_b: str, other: Store | None = None) -> Comparison:
    """Compare run B with run A, sample by sample. UsageError when they share none."""
    a, b = read_run(store, name_a), read_run(other or store, name_b)
    if a.dataset.digest != b.dataset.digest:
        raise UsageError(
            f"runs {name_a!r} and {name_b!r} are over different data sets "
            f"({a.dataset.id} {a.dataset.digest[:19]}, {b.dataset.id} {b.dataset.digest[:19]})"
        )
    in_a = {(entry.task_id, entry.epoch): entry for entry in a.samples}
    in_b = {(entry.task_id, entry.epoch): entry for entry in b.samples}
    shared = [key for key in in_a if key in in_b]
    if not shared:
        raise UsageError(f"runs {name_a!r} and {name_b!r} have no sample in common")
    pairs = [_pair(store, other or store, a, b, in_a[key], in_b[key]) for key in shared]
    scored = all("unscored" not in (pair.verdict_a, pair.verdict_b) for pair in pairs)
    return Comparison(
        a=name_a,
        b=name_b,
        pairs=pairs,
        only_a=[f"{task} epoch {epoch}" for task, epoch in in_a if (task, epoch) not in in_b],
        only_b=[f"{task} epoch {epoch}" for task, epoch in in_b if (task, epoch) not in in_a],
        accuracy_a=_accuracy([pair.verdict_a for pair in pairs]) if scored else None,
        accuracy_b=_accuracy([pair.verdict_b for pair in pairs]) if scored else None,
        significance=_significance(pairs) if scored else None,
    )


def _accuracy(verdicts: list[Verdict]) -> float:
    return sum(verdict == "right" for verdict in verdicts) / len(verdicts)


def _pair(store_a: Store, store_b: Store, a: RunFile, b: RunFile, old: Entry, new: Entry) -> Pair:
    tapes = [
        read_cassette(
            store, entry.cassette, f"the cassette of {entry.task_id!r} in run {run.name!r}"
        )
        if entry.cassette
        else None
        for store, run, entry in ((store_a, a, old), (store_b, b, new))
    ]
    parting, same, answer_changed = None, False, False
    if tapes[0] is not None and tapes[1] is not None:
        first, second = tapes[0], tapes[1]
        assert first.end is not None
        assert second.end is not None
        same = first.end.trajectory == second.end.trajectory
        answer_changed = first.end.answer != second.end.answer
        parting = None if same else part(first, second)
    return Pair(
        task_id=old.task_id,
        epoch=old.epoch,
        level=old.level,
        verdict_a=old.verdict,
        verdict_b=new.verdict,
        answer_changed=answer_changed,
        same_trajectory=same,
        parting=parting,
        steps=new.steps - old.steps,
        tokens=_tokens(new.usage) - _tokens(old.usage),
        seconds=round(new.seconds - old.seconds, 3),
    )


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


def part(a: Tape, b: Tape) -> Parting:
    """Where tape B first differs from tape A; the two must differ somewhere."""
    from harness.difference import difference_words, first_difference, path_text

    def told(old: Any, new: Any) -> dict[str, str]:
        found = first_difference(old, new)
        if found is None:
            return {}
        return {"path": path_text(found.path), "words": difference_words(found)}

    steps = 0
    for index, (old, new) in enumerate(zip(a.effects, b.effects, strict=False)):
        steps += isinstance(new, ModelEffect)
        what, difference = "", {}  # type: str, dict[str, str]
        if old.digest != new.digest:
            what, difference = "request", told(_request(a, index), _request(b, index))
        elif old.failure != new.failure:
            what, difference = "reply", told(_plain(old.failure), _plain(new.failure))
        else:
            first, second = a.reply(old), b.reply(new)
            if reply_digest(first) != reply_digest(second):
                what, difference = "reply", told(_readable(first), _readable(second))
        if what:
            return Parting(
                step=steps, effect=index + 1, kind=_kind(new), what=what, **difference
            )
    shorter, longer = sorted((a, b), key=lambda tape: len(tape.effects))
    if len(shorter.effects) < len(longer.effects):
        effect = longer.effects[len(shorter.effects)]
        steps += isinstance(effect, ModelEffect)
        goes_on = "B" if longer is b else "A"
        return Parting(
            step=steps,
            effect=len(shorter.effects) + 1,
            kind=_kind(effect),
            what="length",
            words=f"{goes_on} goes on",
        )
    assert a.end is not None
    assert b.end is not None
    ends = told(_plain(a.end.outcome), _plain(b.end.outcome))
    return Parting(step=steps, effect=len(a.effects), kind="end", what="end", **ends)


def _kind(effect: AnyEffect) -> str:
    return str(type(effect).__struct_config__.tag)


def _request(tape: Tape, index: int) -> Any:
    effect = tape.effects[index]
    if isinstance(effect, ModelEffect):
        found = tape.request(index)
        return {
            "model": found.model,
            "params": found.params,
            "tools": found.tools,
            "messages": found.messages,
        }
    return {"kind": _kind(effect), **msgspec.to_builtins(effect.request)}


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def _readable(reply: Any) -> Any:
    """A reply as JSON, bytes as the text that they are."""
    if not isinstance(reply, msgspec.Struct):
        return reply
    fields = msgspec.structs.asdict(reply)
    return {
        name: value.decode("utf-8", "backslashreplace")
        if isinstance(value, bytes)
        else _plain(value)
        for name, value in fields.items()
    }


def _significance(pairs: list[Pair]) -> dict[str, Any] | None:
    """Is the difference in accuracy more than luck?

    McNemar's exact test on the flips (a two-sided binomial test, `scipy.stats.binomtest`), and a
    95 % interval on the mean difference per sample, epochs averaged (paired t,
    `scipy.stats.ttest_rel`).
    """
    try:
        from scipy import stats  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    better = sum(p.verdict_b == "right" and p.verdict_a != "right" for p in pairs)
    worse = sum(p.verdict_a == "right" and p.verdict_b != "right" for p in pairs)
    p_value = 1.0
    if better + worse:
        p_value = float(stats.binomtest(better, better + worse).pvalue)
    samples: dict[str, list[tuple[int, int]]] = {}
    for pair in pairs:
        scores = (int(pair.verdict_a == "right"), int(pair.verdict_b == "right"))
        samples.setdefault(pair.task_id, []).append(scores)
    means = [
        [sum(score[side] for score in scores) / len(scores) for scores in samples.values()]
        for side in (0, 1)
    ]
    found: dict[str, Any] = {"better": better, "worse": worse, "p_value": p_value, "interval": None}
    if len(samples) > 1 and means[0] != means[1]:
        differences = {new - old for old, new in zip(*means, strict=True)}
        if len(differences) > 1:
            interval = stats.ttest_rel(means[1], means[0]).confidence_interval(0.95)
            found["interval"] = [float(interval.low), float(interval.high)]
    return found


def lines(found: Comparison) -> Iterator[str]:
    """A comparison for people."""
    pairs = found.pairs
    yield printable(f"{found.a} → {found.b}: {len(pairs)} samples in both")
    for name, missing in ((found.a, found.only_a), (found.b, found.only_b)):
        if missing:
            yield printable(
                f"NOTE: the lists differ: {len(missing)} only in {name}: {', '.join(missing[:5])}"
                + (" …" if len(missing) > 5 else "")
            )
    flips = [pair for pair in pairs if pair.verdict_a != pair.verdict_b]
    answers = [pair for pair in pairs if pair.answer_changed and pair not in flips]
    same = sum(pair.same_trajectory for pair in pairs)
    yield f"{same} alike throughout, {len(flips)} verdicts flip, {len(answers)} other answers"
    for pair in flips:
        yield printable(
            f"  {pair.task_id} epoch {pair.epoch}  level {pair.level}  "
            f"{pair.verdict_a} → {pair.verdict_b}"
        )
    parted = [pair for pair in pairs if pair.parting is not None]
    if parted:
        yield "where they part:"
    for pair in parted:
        place = pair.parting
        assert place is not None
        yield printable(
            f"  {pair.task_id} epoch {pair.epoch}  step {place.step} (effect {place.effect}, "
            f"{place.kind})  {place.what} {place.path}  {place.words}".rstrip()
        )
    yield (
        f"cost: {_signed(sum(pair.steps for pair in pairs))} steps, "
        f"{_signed(sum(pair.tokens for pair in pairs))} tokens, "
        f"{sum(pair.seconds for pair in pairs):+.1f} s live"
    )
    yield from _verdict(found)


def _signed(number: int) -> str:
    return f"{number:+d}"


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
    interval = test["interval"]
    shown = f", 95 % interval of the difference {interval[0]:+.3f} … {interval[1]:+.3f}"
    told = "no more than luck could do" if test["p_value"] >= 0.05 else "more than luck"
    yield (
        f"is it luck? {test['better']} better, {test['worse']} worse: exact McNemar test "
        f"p = {test['p_value']:.3g}{shown if interval else ''}: {told}"
    )
