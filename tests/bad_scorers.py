"""Wrong scorers on purpose, to see what a change of the scorer would do to a run.

    harness score RUN --against tests.bad_scorers:casefold

Each has the signature of the official one and changes one idea of it. They are what people write
when they "improve" the rules; none may ever feed a headline figure.
"""

from decimal import Decimal, InvalidOperation
from math import isclose

from harness.scorer import (
    answer_kind,
    list_form,
    number_form,
    question_scorer,
    string_form,
    truth_number,
)


def casefold(model_answer: str | None, ground_truth: str) -> bool:
    """Case folding in place of lower-casing: a sharp s equals ``ss``, a final sigma a sigma.

    Every flip is from wrong to right.
    """
    answer = None if model_answer is None else model_answer.casefold()
    return question_scorer(answer, ground_truth.casefold())


def tolerant(model_answer: str | None, ground_truth: str) -> bool:
    """Numbers within one percent of the truth are right, inside lists too."""
    kind = answer_kind(ground_truth)
    if kind == "string":
        return question_scorer(model_answer, ground_truth)
    answer = "None" if model_answer is None else model_answer
    if kind == "number":
        return _close(answer, ground_truth)
    parts, truths = list_form(answer), list_form(ground_truth)
    return len(parts) == len(truths) and all(map(_close, parts, truths))


def substring(model_answer: str | None, ground_truth: str) -> bool:
    """The truth anywhere in the answer is enough: talkative answers win, numbers are texts."""
    return string_form(ground_truth) in string_form(model_answer or "None")


def sorted_lists(model_answer: str | None, ground_truth: str) -> bool:
    """The order of a list does not count."""
    if answer_kind(ground_truth) != "list":
        return question_scorer(model_answer, ground_truth)
    left = list_form(model_answer or "None")
    for truth in list_form(ground_truth):
        part = next((part for part in left if _same_part(part, truth)), None)
        if part is None:
            return False
        left.remove(part)
    return not left


def decimal(model_answer: str | None, ground_truth: str) -> bool:
    """Numbers compared digit by digit instead of as floats: 0.1 is not 0.1000000000000000001."""
    try:
        cleaned = (model_answer or "None").translate(str.maketrans("", "", "$%,"))
        if answer_kind(ground_truth) == "number":
            return Decimal(cleaned) == Decimal(ground_truth)
    except InvalidOperation:
        pass  # not a decimal: the official rule has a verdict for that
    return question_scorer(model_answer, ground_truth)


def _same_part(part: str, truth: str) -> bool:
    """The official comparison of two parts: a list of the part and an empty one."""
    return question_scorer(f"{part},", f"{truth},")


def _close(part: str, truth: str) -> bool:
    expected = truth_number(truth)
    if expected is None:
        return _same_part(part, truth)
    return isclose(number_form(part), expected, rel_tol=0.01)
