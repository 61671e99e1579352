"""Solvers of the questions of level 2."""

from __future__ import annotations

import ast
import base64
import hashlib
import heapq
import io
import itertools
import json
import re
import runpy
import sys
import wave
import zipfile
import zlib
from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path
from xml.etree import ElementTree

from .reading import DRAWING, sheets
from .registry import solves


@solves("rows of the stock list that are reserved")
def workshop(question: str, file: Path) -> str:
    book = sheets(file)
    (reserved,) = {fill for text, fill in book["Legend"].values() if "reserved" in text}
    price = {book["Prices"][f"A{i}"][0]: int(book["Prices"][f"B{i}"][0]) for i in range(2, 14)}
    stock = book["Stock"]
    free = [i for i in range(2, 14) if stock[f"A{i}"][1] != reserved]
    cents = sum(int(stock[f"B{i}"][0]) * price[stock[f"A{i}"][0]] for i in free)
    return str(cents / 100)


@solves("paper chase")
def paper_chase(question: str, file: Path) -> str:
    with zipfile.ZipFile(file) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (seven,) = [n for n, data in files.items() if data.count(b"\n") == 7]
    assert b"backwards" in files[seven]
    stems = {name: Path(name).stem for name in files}
    (mirror,) = [name for name, stem in stems.items() if stem == stem[::-1]]
    assert b"largest" in files[mirror]
    last = max(name.partition("/")[0] for name in files if "/" in name)
    large = max((n for n in files if n.startswith(last)), key=lambda name: len(files[name]))
    start = files[large].decode().split()[-1].rstrip(".")
    (end,) = [d for d in files.values() if hashlib.sha256(d).hexdigest().startswith(start)]
    return end.decode().split()[-1].rstrip(".")


@solves("the speaker notes change the programme")
def talks(question: str, file: Path) -> str:
    with zipfile.ZipFile(file) as deck:

        def lines(path: str) -> list[str]:
            tree = ElementTree.fromstring(deck.read(path))
            return ["".join(p.itertext()) for p in tree.iter(DRAWING + "p")]

        slides = {i: lines(f"ppt/slides/slide{i}.xml") for i in range(2, 7)}
        notes = {i: " ".join(lines(f"ppt/notesSlides/notesSlide{i}.xml")) for i in range(2, 7)}
    start, changed = {}, {}
    for _, speaker, clock in slides.values():
        start[speaker.split()[0]] = int(clock[:2]) * 60 + int(clock[3:])
    changed = dict(start)
    for note in notes.values():
        if swap := re.match(r"(\w+) and (\w+) have agreed to exchange", note):
            one, two = swap.groups()
            changed[one], changed[two] = start[two], start[one]
        elif late := re.match(r"(\w+)'s .* begins at (\d+):(\d+)", note):
            changed[late[1]] = int(late[2]) * 60 + int(late[3])
        elif early := re.match(r"(\w+) has .* (\d+) minutes before (\w+)", note):
            changed[early[1]] = start[early[3]] - int(early[2])
    return ", ".join(sorted(changed, key=lambda name: changed[name]))


@solves("message in Morse code")
def morse(question: str, file: Path) -> str:
    table = (
        ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- "
        "...- .-- -..- -.-- --.."
    )
    signs = {sign: chr(ord("A") + i) for i, sign in enumerate(table.split())}
    with wave.open(str(file)) as sound:
        step = sound.getframerate() // 100
        data = sound.readframes(sound.getnframes())
    loud = [
        max(data[i : i + step]) - min(data[i : i + step]) > 60 for i in range(0, len(data), step)
    ]
    spans = [(on, len(list(group))) for on, group in itertools.groupby(loud)]
    unit = min(length for _, length in spans[1:-1])
    code = ""
    for on, length in spans[1:]:
        units = round(length / unit)
        code += ("." if units < 2 else "-") if on else {1: "", 3: " "}.get(units, " / ")
    words = ["".join(signs[c] for c in word.split()) for word in code.strip(" /").split("/")]
    assert words[:4] == ["TURN", "LEFT", "AT", "THE"], words
    return words[4].lower()


SUMMER = ("May", "June", "July", "August", "September")


@solves("rain fell at the gauge")
def rain_gauge(question: str, file: Path) -> str:
    text = ""
    for data in re.findall(rb"stream\n(.*?)~>\s*endstream", file.read_bytes(), re.DOTALL):
        text += zlib.decompress(base64.a85decode(data)).decode("cp1252")
    rain = {month: int(mm) for month, mm in re.findall(r"\((\w+) +(\d+)\) Tj", text)}
    one, two = re.findall(r"readings of (\w+) and (\w+) were exchanged", text)[0]
    rain[one], rain[two] = rain[two], rain[one]
    month, mm = re.findall(r"reading of (\w+) was (\d+), not", text)[0]
    rain[month] = int(mm)
    return str(sum(rain[month] for month in SUMMER))


@solves("describes a tram network")
def trams(question: str, file: Path) -> str:
    net = json.loads(file.read_text())
    roads: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for line, sections in net["lines"].items():
        for one, two, minutes in sections:
            if sorted((one, two)) not in [sorted(pair) for pair in net["closed"]]:
                roads[one].append((line, two, minutes))
                roads[two].append((line, one, minutes))
    queue, seen = [(0, "Aldmoor", "")], set()
    while queue:
        spent, stop, line = heapq.heappop(queue)
        if stop == "Quill Head":
            return str(spent)
        if (stop, line) in seen:
            continue
        seen.add((stop, line))
        for other, there, minutes in roads[stop]:
            change = net["minutes_for_changing_line"] if line not in {"", other} else 0
            heapq.heappush(queue, (spent + minutes + change, there, other))
    raise AssertionError("no trip")


@solves("A market was first held")
def market_days(question: str, file: Path) -> str:
    day = date(2019, 3, 4)
    for _ in range(29):
        day += timedelta(days=9)
        while day.isoweekday() == 7 or day.day == 1:
            day += timedelta(days=1)
    return ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")[day.weekday()]


@solves("readings of eight thermometers")
def thermometers(question: str, file: Path) -> str:
    tenths: dict[str, list[int]] = defaultdict(list)
    for line in file.read_text(encoding="utf-8-sig").splitlines()[1:]:
        station, _, reading = line.split(";")
        if reading != "n/a":
            tenths[station].append(int(reading.replace(",", "")))
    spans = {station: max(seen) - min(seen) for station, seen in tenths.items()}
    assert len(spans) == 8
    return ", ".join(sorted(spans, key=lambda station: -spans[station])[:3])


@solves("never executed when the script is run")
def laundry(question: str, file: Path) -> str:
    called: set[str] = set()

    def watch(frame: object, event: str, argument: object) -> None:
        code = getattr(frame, "f_code", None)
        if event == "call" and code is not None and code.co_filename == str(file):
            called.add(code.co_name)

    before, out = sys.getprofile(), sys.stdout
    sys.stdout = io.StringIO()
    sys.setprofile(watch)
    try:
        runpy.run_path(str(file))
    finally:
        sys.setprofile(before)
        sys.stdout = out
    tree = ast.parse(file.read_text())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return ", ".join(sorted(defined - called))


@solves("all three-digit numbers with three different digits")
def quotients(question: str, file: Path) -> str:
    found = []
    for number in range(100, 1000):
        a, b, c = number // 100, number // 10 % 10, number % 10
        if len({a, b, c}) == 3 and number == (a + b + c) * (10 * a + c):
            found.append(str(number))
    return ", ".join(found)
