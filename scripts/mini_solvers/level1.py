"""Solvers of the questions of level 1."""

from __future__ import annotations

import csv
import itertools
import json
import re
import subprocess
import sys
from collections import defaultdict
from datetime import date
from pathlib import Path

from .reading import STEPS, WORD, accepted, picture, word_text
from .registry import solves


@solves("picking list of a small orchard")
def orchard(question: str, file: Path) -> str:
    rows = csv.DictReader(file.read_text().splitlines())
    return str(
        sum(
            int(row["crates"]) * int(row["kg_per_crate"])
            for row in rows
            if row["variety"] == "Sternrenette"
            and date.fromisoformat(row["date"]).month == 9
            and row["remark"] != "returned"
        )
    )


@solves("attached log of a lighthouse")
def light_log(question: str, file: Path) -> str:
    found = []
    for night in file.read_text().split("Night of")[1:]:
        ways: dict[str, list[str]] = defaultdict(list)
        for name, way in re.findall(r"\d\d:\d\d  \w+ ([A-Z][\w ]+), (\w+ to \w+)", night):
            ways[name].append(way)
        found += [name for name, seen in ways.items() if len(set(seen)) == 2]
    (ship,) = found
    return ship


@solves("In a letter game")
def reversed_word(question: str, file: Path) -> str:
    word = question.rstrip("?").split()[-1]
    letters = [chr((ord(c) - 97 - i) % 26 + 97) for i, c in enumerate(word, 1)]
    return "".join(reversed(letters))


@solves("A safe has five wheels")
def safe(question: str, file: Path) -> str:
    def fits(code: int) -> bool:
        digits = [int(c) for c in f"{code:05d}"]
        rising = all(a < b for a, b in itertools.pairwise(digits))
        return rising and sum(digits) == 25 and sum(d % 2 for d in digits) == 3

    return str(sum(fits(code) for code in range(100000)))


@solves("loans of a small library")
def loans(question: str, file: Path) -> str:
    day = "2022-03-01"
    every = [loan for member in json.loads(file.read_text())["members"] for loan in member["loans"]]
    late = [x["title"] for x in every if x["due"] < day and (x["returned"] or "9") >= day]
    return ", ".join(sorted(late))


@solves("what a car park earned")
def car_park(question: str, file: Path) -> str:
    mended = file.read_text().replace("stay < 30", "stay <= 30")
    done = subprocess.run([sys.executable, "-c", mended], capture_output=True, text=True)
    return done.stdout.strip()


@solves("How many red shapes")
def red_shapes(question: str, file: Path) -> str:
    cells = picture(file, 8)
    red = {
        (x, y)
        for y, row in enumerate(cells)
        for x, (r, g, b) in enumerate(row)
        if r > 180 and g < 80 and b < 80
    }
    shapes = 0
    while red:
        shapes += 1
        edge = [red.pop()]
        while edge:
            x, y = edge.pop()
            near = {(x + a, y + b) for a, b in STEPS} & red
            red -= near
            edge += near
    return str(shapes)


@solves("have lunch on a Thursday")
def lunch_card(question: str, file: Path) -> str:
    price = {
        cells[0]: int(cells[1].replace(".", ""))
        for row in accepted(file).iter(WORD + "tr")
        if (cells := [word_text(cell) for cell in row.iter(WORD + "tc")])[1] != "Euro"
    }
    cents = price["Barley soup"] * 80 // 100 + price["Cheese dumplings"] + price["Lentil stew"]
    return f"{(cents + price['Pot of tea'] // 2 + price['Apple cake']) / 100:.2f}"


@solves("third most bytes")
def place_names(question: str, file: Path) -> str:
    names = question.rstrip("?").split(":")[1].split(",")
    return sorted((name.strip() for name in names), key=lambda name: len(name.encode()))[-3]


@solves("points of a ridge walk")
def ridge_walk(question: str, file: Path) -> str:
    heights = [int(line.split()[1]) for line in file.read_text().splitlines() if line[0] != "#"]
    middle = zip(heights, heights[1:], heights[2:], strict=False)
    return ", ".join(str(b) for a, b, c in middle if a < b > c and b > 750)
