"""The GAIA leaderboard's rule-based scorer: the only source of an official verdict.

Source of the rules: ``scorer.py`` of the GAIA leaderboard (The GAIA Benchmark Authors, 2023,
Apache-2.0). The rules are theirs, the code is ours. "A float" means: Python's ``float()`` reads it.

1. A missing answer counts as the text ``None``.
2. *number*: the truth is a float. Every ``$``, ``%`` and ``,`` is deleted from the answer, the
   rest is read by ``float()``, +infinity where that fails; right if it equals the truth's float.
3. *list*: else, the truth holds ``,`` or ``;``. Both sides are split at each of them, untrimmed,
   empty parts kept. As many parts, and place by place: rule 2 where the truth's part is a float,
   else equal once whitespace is removed and letters are lower-cased; punctuation counts.
4. *string*: else. As in a list, but the 32 characters of ``string.punctuation`` are deleted last.

The order of the rules is a rule, and nothing else is cleaned: surprising consequences are the
leaderboard's own (see ``docs/scoring.md``) and must not be mended here.
"""

from string import punctuation
from typing import Literal

AnswerKind = Literal["number", "list", "string"]

_NUMBER_SYMBOLS = str.maketrans("", "", "$%,")
_PUNCTUATION = str.maketrans("", "", punctuation)


def question_scorer(model_answer: str | None, ground_truth: str) -> bool:
    """Whether the leaderboard counts ``model_answer`` as right for ``ground_truth``.

    The answer is a text or None; other JSON values become text first (``harness.answers``).
    Never raises for these types. A truth of only punctuation, such as the ``?`` of the test split,
    equals an empty answer: whoever has such truths must not ask.
    """
    answer = "None" if model_answer is None else model_answer
    kind = answer_kind(ground_truth)
    if kind == "string":
        return string_form(answer) == string_form(ground_truth)
    if kind == "number":
        return _same_part(answer, ground_truth)
    parts, truths = list_form(answer), list_form(ground_truth)
    return len(parts) == len(truths) and all(map(_same_part, parts, truths))


def answer_kind(truth: str) -> AnswerKind:
    """Which rule the truth selects; the answer has no say in it."""
    if truth_number(truth) is not None:
        return "number"
    return "list" if "," in truth or ";" in truth else "string"


def truth_number(truth: str) -> float | None:
    """The float that a truth, or a part of a list truth, is; None if it is none.

    Truths are never cleaned: ``1_000`` and ``1e400`` (infinity) are floats, ``$5`` is not.
    """
    try:
        return float(truth)
    except ValueError:
        return None


def number_form(answer: str) -> float:
    """An answer as the number rule reads it: ``$``, ``%``, ``,`` gone, +infinity if unreadable."""
    value = truth_number(answer.translate(_NUMBER_SYMBOLS))
    return float("inf") if value is None else value


def list_form(text: str) -> list[str]:
    """The parts between single ``,`` or ``;``, untrimmed; always at least one, possibly empty."""
    return text.replace(";", ",").split(",")


def item_form(text: str) -> str:
    """A list's part as it is compared: no whitespace (Unicode's), lower case, punctuation kept.

    Lower case is ``str.lower()`` of the whole text, in which a final sigma depends on neighbours:
    whitespace has to go before it and punctuation after it.
    """
    return "".join(text.split()).lower()


def string_form(text: str) -> str:
    """A string as it is compared: ``item_form`` without the ASCII punctuation characters."""
    return item_form(text).translate(_PUNCTUATION)


def _same_part(answer: str, truth: str) -> bool:
    expected = truth_number(truth)
    if expected is None:
        return item_form(answer) == item_form(truth)
    return number_form(answer) == expected
