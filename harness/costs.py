"""What a recording cost: live time, tokens, and money where the user says what tokens cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

import msgspec

from harness.errors import UsageError
from harness.records import Usage


class Spent(Protocol):
    """A sample and epoch of a run, as far as its cost goes."""

    usage: Usage
    seconds: float


class Price(msgspec.Struct, frozen=True):
    """Per million tokens, in whatever currency the user counts in."""

    input: float
    output: float


class Cost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the samples of a run cost when they were recorded."""

    seconds: float
    """Live time, added up over the samples: less has passed when several were in flight."""
    input_tokens: int
    """As the endpoint counted them; 0 where it counted none."""
    output_tokens: int
    price: float | None = None
    """None when no price was given."""

    def at(self, price: Price | None) -> Cost:
        """The same with what it comes to at that price."""
        if price is None:
            return self
        paid = self.input_tokens * price.input + self.output_tokens * price.output
        return msgspec.structs.replace(self, price=round(paid / 1e6, 6))

    def __str__(self) -> str:
        parts = [_time(self.seconds), f"{_count(self.input_tokens + self.output_tokens)} tokens"]
        if self.price is not None:
            parts.append(f"cost {money(self.price)}")
        return ", ".join(parts)


def parse_price(text: str) -> Price:
    """`IN,OUT` or one figure for both; UsageError for what is no price."""
    try:
        figures = [float(part) for part in text.split(",")]
    except ValueError:
        figures = []
    if not 1 <= len(figures) <= 2 or not all(0 <= f < math.inf for f in figures):
        raise UsageError(
            f"{text!r} is no price per million tokens", hint="--price 0.5,1.5 (input,output)"
        )
    return Price(figures[0], figures[-1])


def cost_of(entries: Iterable[Spent]) -> Cost:
    """The cost of these samples together."""
    return total(
        Cost(
            seconds=e.seconds,
            input_tokens=e.usage.input_tokens,
            output_tokens=e.usage.output_tokens,
        )
        for e in entries
    )


def total(costs: Iterable[Cost]) -> Cost:
    """Several costs together, without a price."""
    costs = list(costs)
    return Cost(
        seconds=round(math.fsum(cost.seconds for cost in costs), 1),
        input_tokens=sum(cost.input_tokens for cost in costs),
        output_tokens=sum(cost.output_tokens for cost in costs),
    )


def money(amount: float) -> str:
    """Two decimals, more when there would be nothing to see."""
    return f"{amount:.2f}" if amount >= 1 or amount == 0 else f"{amount:.2g}"


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


def _count(number: int) -> str:
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return str(number)
