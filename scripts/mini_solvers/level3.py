"""Solvers of the questions of level 3."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import re
import zipfile
import zlib
from collections import Counter, defaultdict, deque
from datetime import date
from pathlib import Path

from .reading import STEPS, WORD, accepted, picture, sheets, word_text
from .registry import solves


@solves("owe for May 2023")
def rooms(question: str, file: Path) -> str:
    with zipfile.ZipFile(file) as archive:
        table = archive.read("house/bookings.csv").decode()
        rates = json.loads(archive.read("house/rates.json"))
    quarters = 0  # of a cent: a cancelled booking costs a quarter
    for row in csv.DictReader(io.StringIO(table)):
        day = date.fromisoformat(row["date"])
        if row["member"] != "4138" or (day.year, day.month) != (2023, 5):
            continue
        weight = {"held": 4, "cancelled": 1}.get(row["status"], 0)
        begin, end = (int(row[k][:2]) * 60 + int(row[k][3:]) for k in ("from", "to"))
        halves = max(2, (end - begin + 29) // 30)
        dear = day.isoweekday() > 5 or row["date"] in rates["holidays"]
        rate = rates["cents_per_hour"][row["room"]]["weekend" if dear else "weekday"]
        quarters += halves * (rate // 2) * weight
    return f"{quarters / 4 * 9 / 10 / 100:.2f}"


@solves("saved before its formulas were calculated")
def unsaved_plan(question: str, file: Path) -> str:
    book = sheets(file)

    def value(sheet: str, ref: str) -> float:
        text = book[sheet].get(ref, ("0", ""))[0]
        return calculate(sheet, text[1:]) if text.startswith("=") else float(text)

    def cells(sheet: str, first: str, last: str) -> list[float]:
        return [value(sheet, f"{first[0]}{i}") for i in range(int(first[1:]), int(last[1:]) + 1)]

    def calculate(sheet: str, formula: str) -> float:
        code = re.sub(r"([A-Z]\d+):([A-Z]\d+)", rf'cells("{sheet}","\1","\2")', formula)
        code = re.sub(r"Rates!([A-Z]\d+)", r'value("Rates","\1")', code)
        code = re.sub(r'(?<!")\b([A-Z]\d+)\b(?!")', rf'value("{sheet}","\1")', code)
        names = {
            "value": value,
            "cells": cells,
            "SUM": sum,
            "MAX": max,
            "MIN": min,
            "IF": lambda test, yes, no: yes if test else no,
        }
        return float(eval(code, names))

    return str(value("Plan", "E9"))


@solves("shows a maze of square cells")
def toll_maze(question: str, file: Path) -> str:
    cells = picture(file, 8)
    kind = {
        (x, y): "black" if r + g + b < 150
        else "white" if r + g + b > 700
        else "orange" if r > 200
        else "green" if g > b else "blue"
        for y, row in enumerate(cells) for x, (r, g, b) in enumerate(row)
    }  # fmt: skip
    (start,) = [place for place, colour in kind.items() if colour == "green"]
    queue, seen = deque([(start, 0, 0)]), {(start, 0)}
    while queue:
        (x, y), tolls, steps = queue.popleft()
        if kind[x, y] == "blue":
            return str(steps)
        for a, b in STEPS:
            there = (x + a, y + b)
            paid = tolls + (kind[there] == "orange")
            if kind[there] != "black" and paid <= 2 and (there, paid) not in seen:
                seen.add((there, paid))
                queue.append((there, paid, steps + 1))
    raise AssertionError("no way")


@solves("in a row of seven seats")
def seven_seats(question: str, file: Path) -> str:
    found = []
    for row in itertools.permutations(["Ada", "Ben", "Cleo", "Dov", "Edda", "Finn", "Gus"]):
        ada, ben, cleo, dov, edda, finn, gus = (row.index(n) for n in sorted(row))
        if (
            abs(ada - ben) == 3
            and abs(cleo - ada) == abs(edda - finn) == abs(dov - ben) == 1
            and cleo + 1 < gus
            and cleo < dov
            and edda < ada > finn
            and not {finn, gus} & {0, 6}
        ):
            found.append(", ".join(row))
    (only,) = found
    return only


@solves("tracked changes in the attached minutes")
def boathouse_key(question: str, file: Path) -> str:
    text = "\n".join(word_text(p) for p in accepted(file).iter(WORD + "p"))
    people: dict[str, str] = dict(re.findall(r"The (treasurer|secretary) is ([\w ]+),", text))
    assert "From the first of June the treasurer and the secretary change offices." in text
    people = {"treasurer": people["secretary"], "secretary": people["treasurer"]}
    (office,) = re.findall(r"key of the boathouse is kept by the (\w+) in office", text)
    assert "warden is also" not in text
    return people[office]


@solves("a time and a message in base64")
def radio_log(question: str, file: Path) -> str:
    depths: dict[str, list[int]] = defaultdict(list)
    for line in file.read_text().splitlines():
        body, _, check = base64.b64decode(line.split()[1]).rpartition(b"|")
        if zlib.crc32(body) == int(check, 16):
            fields = dict(part.split("=") for part in body.decode().split(";"))
            depths[fields["buoy"]].append(int(fields["depth"]))
    ((buoy, first), (_, second)) = Counter({b: len(d) for b, d in depths.items()}).most_common(2)
    assert first > second
    return str(sum(depths[buoy]))
