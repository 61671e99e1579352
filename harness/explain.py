"""Why an answer was wrong: data for whoever writes the prompt, never a score.

`explain` looks for the smallest change of form that would have made a wrong answer right under
the official rules: it applies `harness.rewrites` to the answer and the truth, one at a time, then
two, and asks the official scorer about the result. These are heuristics, so a label is a hint where
to look, and no accuracy may be made of it. Labels and hints never contain an answer or a truth.
"""

import re
from collections.abc import Iterator
from itertools import combinations
from math import isfinite
from typing import NamedTuple

from harness.rewrites import REWRITES, stands_in
from harness.scorer import answer_kind, list_form, number_form, question_scorer, truth_number


class Explanation(NamedTuple):
    """The class of a wrong answer, and what to do about it in words.

    ``label`` is one of the keys of `HINTS`, ``hint`` is a sentence that is safe to publish.
    """

    label: str
    hint: str

    @property
    def winnable(self) -> bool:
        """Whether the value was right in a wrong form, so that a better prompt could win it."""
        return self.label in WINNABLE


HINTS = {
    "right": "The official rules call it right.",
    "no_answer": "Nothing was submitted: look at the step limit and at how the loop ended.",
    "empty_answer": "The submitted answer is blank.",
    "lookalike": "Same but for look-alike characters: ask for plain ASCII digits, dashes, quotes.",
    "accents": "Same but for accents: ask for names in their original spelling.",
    "letter_case": "Same but for letters that differ only by case folding, such as a sharp s.",
    "list_separator": "Same items, separated otherwise: ask for items separated by commas.",
    "number_word": "Same number, spelled in words or in digits: say which is wanted.",
    "separators_in_number": "Same number, with thousands or decimal separators in another style.",
    "article": "Same but for an article: ask for no articles.",
    "punctuation": "Same but for punctuation around a number or inside a list item.",
    "unit": "Same number, with a unit where none is wanted or without one where it is.",
    "scale": "Same digits at another scale (percent, thousands, millions): name the scale.",
    "rounding": "Same number to another precision: ask for the precision that the question names.",
    "order": "Same items in another order: ask for the order that the question names.",
    "extra_words": "The truth stands in the answer among other words: ask for the value alone.",
    "several_forms": "Right value, but two things about its form are off:",
    "missing_words": "The answer is a part of the truth.",
    "wrong_kind": "Another kind of value, such as words where a number is wanted.",
    "wrong_length": "A list with more or fewer items than the truth.",
    "plainly_wrong": "Another value.",
}
"""Every label, in the order of a report, with its advice."""

NOT_WINNABLE = frozenset(
    {"right", "no_answer", "empty_answer", "missing_words"}
    | {"wrong_kind", "wrong_length", "plainly_wrong"}
)
WINNABLE = frozenset(HINTS) - NOT_WINNABLE


MAX_LENGTH = 1000
"""Characters; a longer answer is not searched for a form, which would take long and find little."""


def explain(answer: str | None, truth: str) -> Explanation:
    """Classify a wrong answer. Pure; one that is right after all gets the label ``right``."""
    if answer is None:
        return _explanation("no_answer")
    if question_scorer(answer, truth):
        return _explanation("right")
    if not answer.strip():
        return _explanation("empty_answer")
    for labels in _attempts() if len(answer) <= MAX_LENGTH else ():
        if _right_after(labels, answer, truth):
            return _explanation(*labels)
    return _explanation(_difference(answer, truth))


def _explanation(*labels: str) -> Explanation:
    if len(labels) == 1:
        return Explanation(labels[0], HINTS[labels[0]])
    return Explanation("several_forms", f"{HINTS['several_forms']} {' and '.join(labels)}.")


def _attempts() -> Iterator[tuple[str, ...]]:
    """Each rewrite alone, then every two of them in the order of `REWRITES`."""
    for size in (1, 2):
        yield from combinations(REWRITES, size)


def _right_after(labels: tuple[str, ...], answer: str, truth: str) -> bool:
    for label in labels:
        answer, truth = REWRITES[label](answer, truth)
    # A rewrite that leaves nothing of the truth, or infinity, would match anything.
    number = truth_number(truth)
    meaningful = any(map(str.isalnum, truth)) and (number is None or isfinite(number))
    return meaningful and question_scorer(answer, truth)


def _difference(answer: str, truth: str) -> str:
    """Which way a value is wrong that no rewrite saves."""
    kind, parts, truths = answer_kind(truth), list_form(answer), list_form(truth)
    readable = [isfinite(number_form(part)) for part in parts]
    if kind == "number" and (len(parts) > 1 or not readable[0]):
        grouped = re.fullmatch(r"[^\d]*\d{1,3}(,\d{3})+(\.\d*)?%?\s*", answer)
        return "plainly_wrong" if grouped else "wrong_kind"
    if kind == "string":
        if readable == [True] and not any(map(str.isdecimal, truth)):
            return "wrong_kind"
        return "missing_words" if stands_in(answer, truth) else "plainly_wrong"
    if kind == "list":
        if all(truth_number(part) is not None for part in truths) and not any(readable):
            return "wrong_kind"
        if len(parts) != len(truths):
            return "wrong_length"
    return "plainly_wrong"
