"""The questions of level 2."""

from __future__ import annotations

import hashlib
import json

from .formats import Cell, pdf, wav, xlsx, zip_file
from .slides import pptx
from .task import Task, numbers

YELLOW, GREEN = "FFEB3B", "A5D6A7"


def workshop() -> bytes:
    """A stock list with coloured rows and, on a second sheet, prices in cents in other order."""
    prices = {
        "hinge 40 mm": 185, "hinge 60 mm": 240, "wood screw 3x20": 4, "wood screw 4x40": 7,
        "drawer rail": 960, "door knob, brass": 1275, "door knob, oak": 890, "felt pad": 12,
        "corner brace": 65, "shelf pin": 9, "castor 50 mm": 430, "table leg": 2150,
    }  # fmt: skip
    counts = [24, 10, 800, 650, 14, 6, 9, 300, 88, 240, 32, 8]
    marks = ["", YELLOW, "", GREEN, YELLOW, "", "", GREEN, "", YELLOW, "", GREEN]
    order = [5, 0, 9, 3, 11, 7, 1, 8, 2, 10, 6, 4]
    names = list(prices)
    stock: list[list[str | int | float | Cell | None]] = [["Part", "Pieces"]]
    for place in order:
        mark = marks[place]
        stock.append([Cell(names[place], mark), Cell(counts[place], mark)])
    listed: list[list[str | int | float | Cell | None]] = [["Part", "Cents per piece"]]
    listed += [[name, prices[name]] for name in sorted(names, reverse=True)]
    legend: list[list[str | int | float | Cell | None]] = [
        [Cell("reserved for the school job", YELLOW)],
        [Cell("counted twice, correct", GREEN)],
    ]
    return xlsx({"Stock": stock, "Prices": listed, "Legend": legend})


def paper_chase() -> bytes:
    """An archive in which every file sends the reader to the next one."""
    last = b"Well done.\nThe bird you are looking for is the bittern.\n"
    files = {
        "start.txt": b"Begin with the only file in this archive that has exactly seven lines.\n",
        "attic/trunk.txt": b"A trunk.\nThe bird you are looking for is the wren.\n",
        "attic/rafters.txt": b"dust\nmore dust\na nest\ntwigs\n"
        b"Look for the file whose name, without folder and ending,\n"
        b"reads the same forwards and backwards.\nNothing else is up here.\n",
        "attic/window.txt": b"one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n",
        "cellar/noon.txt": b"At noon go to the largest file of the folder\n"
        b"whose name comes last in the alphabet.\n",
        "cellar/shelf.txt": b"jam, jam, jam\nThe bird you are looking for is the dipper.\n",
        "garden/shed.txt": b"A rake.\nThe bird you are looking for is the heron.\n",
        "yard/pump.txt": b"",
        "yard/gate.txt": b"Creak.\n" * 9,
        "yard/wall.txt": b"Moss.\n" * 12,
        "garden/pond.txt": last,
    }
    name = hashlib.sha256(last).hexdigest()[:6]
    files["yard/pump.txt"] = (
        b"Pump, pump, pump, and the water comes up from far below.\n" * 3
        + f"The last file is the one whose SHA-256 begins with {name}.\n".encode()
    )
    return zip_file(files)


SLIDES = [
    ("Rivers and people: an afternoon of talks", ["Hall 2", "all talks last 30 minutes"], ""),
    ("Reading old flood marks", ["Tadeusz Wrona", "13:00"], "No change here."),
    (
        "Weirs without walls",
        ["Bjørn Aas", "13:45"],
        "Bjørn and Ioana have agreed to exchange their times.",
    ),
    (
        "The ferry that ran on current alone",
        ["Noor Haddad", "14:30"],
        "Noor's train is late: her talk now begins at 16:30.",
    ),
    ("Songs of the raftsmen", ["Ioana Pârvu", "15:15"], "See the note on Bjørn's slide."),
    (
        "What mussels remember",
        ["Yuki Endo", "16:00"],
        "Yuki has to leave early and speaks 75 minutes before Tadeusz.",
    ),
]

MORSE = {
    "A": ".-", "D": "-..", "E": ".", "F": "..-.", "H": "....", "L": ".-..", "N": "-.",
    "R": ".-.", "T": "-", "U": "..-", "W": ".--",
}  # fmt: skip


def morse(message: str) -> bytes:
    """Dots of one unit, dashes of three; pauses of one, three and seven units."""
    tones: list[tuple[bool, int]] = [(False, 5)]
    for letter in message:
        if letter == " ":
            tones.append((False, 4))
            continue
        for sign in MORSE[letter]:
            tones += [(True, 3 if sign == "-" else 1), (False, 1)]
        tones.append((False, 2))
    return wav(tones, unit=160, rate=4000)


REPORT = pdf(
    [
        [
            "Rain gauge at Upper Millbeck",
            "Yearly report 2018",
            "",
            "The gauge was read on the first morning of every month for the month before.",
            "All readings are in millimetres. The table is on page 2.",
        ],
        [
            "Table 1: rain by month",
            "",
            "January     88",
            "February    61",
            "March       74",
            "April       39",
            "May         52",
            "June        97",
            "July        45",
            "August      16",
            "September   70",
            "October    103",
            "November   110",
            "December    95",
        ],
        [
            "Corrections",
            "",
            "(1) The readings of April and June were exchanged by mistake.",
            "(2) The reading of August was 61, not 16.",
            "(3) The reading of October belongs to a funnel that was 10 percent too",
            "    wide; it is left as it is.",
        ],
    ]
)

TRAMS = {
    "minutes_for_changing_line": 4,
    "lines": {
        "green": [
            ["Aldmoor", "Birch Lane", 4],
            ["Birch Lane", "Cawdon", 3],
            ["Cawdon", "Mint Square", 5],
            ["Mint Square", "Quill Head", 5],
        ],
        "blue": [
            ["Aldmoor", "Dry Dock", 3],
            ["Dry Dock", "Elm Gate", 4],
            ["Elm Gate", "Mint Square", 4],
            ["Mint Square", "Fen End", 7],
        ],
        "red": [
            ["Birch Lane", "Elm Gate", 2],
            ["Elm Gate", "Harrow Hill", 3],
            ["Harrow Hill", "Quill Head", 5],
        ],
        "grey": [
            ["Dry Dock", "Ox Ferry", 2],
            ["Ox Ferry", "Harrow Hill", 2],
            ["Harrow Hill", "Fen End", 3],
            ["Fen End", "Quill Head", 4],
        ],
    },
    "closed": [["Cawdon", "Mint Square"], ["Harrow Hill", "Ox Ferry"]],
}


def thermometers() -> bytes:
    """Decimal commas, semicolons, a byte order mark, and readings that are missing."""
    places = [
        ("Łeba", 141, 60), ("Brno", 118, 95), ("Åre", 22, 88), ("Vlorë", 201, 50),
        ("Cádiz", 224, 41), ("Oulu", 35, 102), ("Špindl", 64, 83), ("Tróia", 216, 47),
    ]  # fmt: skip
    pick = numbers(77, 0, 100)
    lines = ["station;day;reading (°C)"]
    for day in range(1, 10):
        for name, middle, swing in places:
            tenths = middle - swing + next(pick) * swing // 50
            text = f"{'-' if tenths < 0 else ''}{abs(tenths) // 10},{abs(tenths) % 10}"
            lines.append(f"{name};{day};{'n/a' if next(pick) < 12 else text}")
    return ("\ufeff" + "\r\n".join(lines) + "\r\n").encode()


LAUNDRY = '''\
"""Plan of a small laundry: which machine runs which load."""


def weigh(load: list[int]) -> int:
    return sum(load)


def rinse(load: list[int]) -> list[int]:
    return [piece + 1 for piece in load]


def fold(load: list[int]) -> list[int]:
    return sorted(load)


def starch(load: list[int]) -> list[int]:
    return [piece * 2 for piece in press(load)]


def press(load: list[int]) -> list[int]:
    return fold(load)


def hang(load: list[int]) -> list[int]:
    return airing(load) if load else []


def airing(load: list[int]) -> list[int]:
    return hang(load[1:])


def spin(load: list[int]) -> list[int]:
    return rinse(load) if weigh(load) > 90 else load


STEPS = {"gentle": spin, "hot": rinse}


def main() -> None:
    load = [12, 30, 7]
    for name in ("hot", "gentle"):
        load = STEPS[name](load)
    print("press", weigh(fold(load)))


main()
'''

LEVEL_2 = [
    Task(
        "workshop",
        2,
        "In the attached workbook, rows of the stock list that are reserved have a fill colour, "
        "as the legend says. What is the total value in euros of all parts that are not "
        "reserved, at the prices of the second sheet?",
        "681.3",
        ("find the colour of reserved rows", "read the stock", "look up prices", "add up"),
        8,
        ("Python", "spreadsheet program"),
        "xlsx",
        workshop(),
    ),
    Task(
        "paper-chase",
        2,
        "The attached archive is a paper chase: begin with start.txt and follow what the files "
        "say. Which bird does the last file name?",
        "bittern",
        ("unpack", "count lines", "find the palindrome", "compare sizes", "compute digests"),
        8,
        ("archive program", "Python"),
        "zip",
        paper_chase(),
    ),
    Task(
        "talks",
        2,
        "The attached slides announce an afternoon of talks; the speaker notes change the "
        "programme. In which order do the five people speak once all notes are followed? Give "
        "their first names, separated by commas.",
        "Yuki, Tadeusz, Ioana, Bjørn, Noor",
        ("read the times", "read the notes", "apply the changes", "sort by time"),
        6,
        ("presentation program",),
        "pptx",
        pptx(SLIDES),
    ),
    Task(
        "morse",
        2,
        "The attached recording is a message in Morse code that tells a walker the way. Which "
        "kind of tree does it name?",
        "walnut",
        ("find the tones", "measure their lengths", "translate", "pick the tree"),
        12,
        ("Python", "audio editor"),
        "wav",
        morse("TURN LEFT AT THE WALNUT"),
    ),
    Task(
        "rain-gauge",
        2,
        "How many millimetres of rain fell at the gauge of the attached report from May to "
        "September together, both months included, once the report's own corrections are made?",
        "267",
        ("read the table", "read the corrections", "apply them", "add up five months"),
        5,
        ("PDF viewer",),
        "pdf",
        REPORT,
    ),
    Task(
        "trams",
        2,
        "The attached file describes a tram network: the sections of each line with their "
        "minutes, good for both directions. Closed sections cannot be used by any line, a change "
        "of line costs the minutes stated, and stops cost nothing. How many minutes does the "
        "quickest trip from Aldmoor to Quill Head take?",
        "18",
        ("build the graph of stops and lines", "leave out closed sections", "search it"),
        8,
        ending="json",
        attachment=json.dumps(TRAMS, indent=1).encode() + b"\n",
    ),
    Task(
        "market-days",
        2,
        "A market was first held on Monday, 4 March 2019. Each next market was planned for nine "
        "days after the one before had really been held; if that day was a Sunday or the first "
        "of a month, the market was held on the next day that was neither. On which day of the "
        "week was the 30th market held?",
        "Friday",
        ("simulate the markets", "move the days that are not allowed", "name the weekday"),
        6,
    ),
    Task(
        "thermometers",
        2,
        "The attached file holds readings of eight thermometers. Which three stations have the "
        "largest difference between their highest and their lowest reading? Name them from the "
        "largest difference to the smallest, separated by commas.",
        "Oulu, Brno, Špindl",
        ("read the file with its commas", "skip missing readings", "compare the spans"),
        6,
        ending="csv",
        attachment=thermometers(),
    ),
    Task(
        "laundry",
        2,
        "Which functions of the attached script are never executed when the script is run? Give "
        "their names in alphabetical order, separated by commas.",
        "airing, hang, press, starch",
        ("follow the calls from the main function", "mind the table of functions", "sort"),
        6,
        ending="py",
        attachment=LAUNDRY.encode(),
    ),
    Task(
        "quotients",
        2,
        "Find all three-digit numbers with three different digits that can be divided by the sum "
        "of their digits, and for which the quotient is the two-digit number made of their first "
        "and their last digit, in this order. Give them in rising order, separated by commas.",
        "135, 315, 405, 480",
        ("go through all numbers", "check the digits", "compare the quotient"),
        4,
    ),
]
