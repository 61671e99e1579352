"""What a recording cost, and how it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.costs import Cost, Price, parse_price, total
from harness.errors import UsageError
from tests.commands import Commands
from tests.scripted import dataset


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    dataset(tmp_path / "data", [("a", 1, "x"), ("b", 2, "y")])
    return Commands(tmp_path, monkeypatch)


COSTS = st.builds(
    Cost,
    seconds=st.integers(0, 10**6).map(lambda tenths: tenths / 10),
    input_tokens=st.integers(0, 10**9),
    output_tokens=st.integers(0, 10**9),
)


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("0.5,1.5", Price(0.5, 1.5)),
        ("2", Price(2, 2)),
        ("0,0", Price(0, 0)),
        (" 1 , 2 ", Price(1, 2)),
    ],
)
def test_prices(text: str, price: Price) -> None:
    assert parse_price(text) == price


@pytest.mark.parametrize("text", ["", "x", "1,2,3", "-1", "1,", "nan", "inf,1", "1;2", "1 2"])
def test_what_is_no_price(text: str) -> None:
    with pytest.raises(UsageError, match="no price per million tokens"):
        parse_price(text)


@given(st.lists(COSTS), st.integers(0, 100), st.integers(0, 100))
def test_a_total_costs_what_its_parts_cost(costs: list[Cost], paid: int, more: int) -> None:
    price = Price(paid, more)
    parts = [cost.at(price).price for cost in costs]
    assert total(costs).at(price).price == pytest.approx(sum(p for p in parts if p is not None))
    assert total(costs).at(None).price is None


@pytest.mark.parametrize(
    ("seconds", "tokens", "told"),
    [
        (3.04, 999, "3.0 s, 999 tokens"),
        (90, 188_119, "2 min, 188.1 k tokens"),
        (9_000, 1_200_000, "2 h 30 min, 1.2 M tokens"),
    ],
)
def test_how_it_is_told(seconds: float, tokens: int, told: str) -> None:
    assert str(Cost(seconds=seconds, input_tokens=tokens, output_tokens=0)) == told


def test_a_replay_says_what_it_saved(cli: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.record()
    run = json.loads(cli("show", "r", "--json").stdout)
    tokens = [sample["usage"] for sample in run["samples"]]
    spent = {name: sum(usage[name] for usage in tokens) for name in tokens[0]}
    assert spent["input_tokens"] > 0
    assert {name: run["cost"][name] for name in spent} == spent
    due = (3 * spent["input_tokens"] + 5 * spent["output_tokens"]) / 1e6

    replayed = cli("replay", "r", "--json", "--price", "3,5")
    assert json.loads(replayed.stdout)["cost"]["price"] == pytest.approx(due)
    assert f"{len(tokens)} samples in " in replayed.stderr
    assert "; recorded live in " in replayed.stderr
    assert ", cost 0.00" in replayed.stderr
    assert "cost" not in cli("replay", "r").stderr

    assert json.loads(cli("ls", "--json", "--price", "3,5").stdout)["price"] == pytest.approx(due)
    assert "COST" not in cli("ls").stdout
    monkeypatch.setenv("HARNESS_PRICE", "3,5")
    assert "COST" in cli("ls").stdout
    assert ", cost 0.00" in cli("show", "r").stdout
    assert "no price" in cli("ls", "--price", "x", status=2).output
