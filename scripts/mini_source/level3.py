"""The questions of level 3."""

from __future__ import annotations

import base64
import json
import zlib

from .formats import Cell, docx, paragraph, png, xlsx, zip_file
from .task import Task, numbers

BOOKINGS = """\
id,room,date,from,to,member,status
301,kiln,2023-04-30,10:00,12:00,4138,held
302,kiln,2023-05-01,09:00,10:40,4138,held
303,hall,2023-05-02,18:10,19:00,4138,held
304,loft,2023-05-03,17:00,19:05,2071,held
305,kiln,2023-05-05,14:00,14:30,4138,held
306,hall,2023-05-06,10:15,12:30,4138,cancelled
307,loft,2023-05-07,16:00,17:31,4138,held
308,hall,2023-05-09,19:00,22:00,3316,held
309,hall,2023-05-12,20:00,22:10,4138,held
310,kiln,2023-05-13,11:00,13:00,2071,cancelled
311,loft,2023-05-18,08:30,10:30,4138,cancelled
312,loft,2023-05-19,18:00,18:20,2071,held
313,kiln,2023-05-20,13:00,14:59,4138,held
314,hall,2023-05-24,09:00,11:00,3316,cancelled
315,hall,2023-05-29,15:00,16:30,4138,held
316,loft,2023-05-31,19:30,21:00,4138,moved to June
317,loft,2023-06-02,19:30,21:00,4138,held
"""

RATES = {
    "cents_per_hour": {
        "hall": {"weekday": 2400, "weekend": 3200},
        "kiln": {"weekday": 1400, "weekend": 1800},
        "loft": {"weekday": 1000, "weekend": 1200},
    },
    "holidays": ["2023-05-01", "2023-05-18", "2023-05-29"],
}

RULES = """\
How the community house charges its rooms

1. Every half hour that was begun is charged, at half the rate of an hour. Nobody pays
   for less than one hour.
2. Saturdays, Sundays and the holidays listed with the rates cost the weekend rate.
3. A cancelled booking costs a quarter of what it would have cost if it had been held.
4. A booking that was moved to another month costs nothing in the month it left.
5. Members whose number ends in an even digit helped to build the house: they pay ten
   percent less, on the sum of the month.
"""

COLOURS = {
    "#": (20, 20, 20),
    ".": (250, 250, 250),
    "o": (255, 152, 0),
    "S": (46, 160, 67),
    "E": (33, 102, 214),
}

MAZE = """\
#####################
#S......#...........#
#######.#.#####.##o##
#...#.#.#.....#.#...#
#.#.#.#.#####.#.#.#.#
#.#...#.....#.#...o.#
#.#########.###o###.#
#...#.....#.#...#...#
#.#.#.###.#.#.#.#.#.#
#.#.#.#.#...#.#.o.#.#
#.#.#.#.#####.#.#.###
#.#...#.......#.o...#
#.#o#o#.##o####.#.#.#
#.#.....#...#...o.#.#
#.#.###o#.###.###o#.#
#...#...#...#.o...#.#
#####.#.#.#.#.#.#.#.#
#...#.o...#...#.#.#.#
#.#.#.######o##.#.#.#
#.#.............#..E#
#####################
""".splitlines()

PLAN = xlsx(
    {
        "Plan": [
            ["Work", "Hours", "People", "Cost", "Planned"],
            [
                "clear the ground",
                6,
                4,
                Cell("=B2*C2*Rates!B2"),
                Cell("=IF(D2>Rates!B8,D2*2,D2+50)"),
            ],
            ["lay the beams", 9, 3, Cell("=B3*C3*Rates!B3"), Cell("=IF(D3>Rates!B8,D3*2,D3+50)")],
            ["roof", 14, 2, Cell("=B4*C4*Rates!B4"), Cell("=IF(D4>Rates!B8,D4*2,D4+50)")],
            ["windows", 5, 2, Cell("=B5*C5*Rates!B5"), Cell("=IF(D5>Rates!B8,D5*2,D5+50)")],
            ["paint", 8, 5, Cell("=B6*C6*Rates!B6"), Cell("=IF(D6>Rates!B8,D6*2,D6+50)")],
            ["Sum", Cell("=SUM(B2:B6)"), None, Cell("=SUM(D2:D6)"), Cell("=SUM(E2:E6)")],
            ["Without the dearest", None, None, Cell("=D7-MAX(D2:D6)"), Cell("=E7-MAX(E2:E6)")],
            ["Per hour of the plan", None, None, None, Cell("=(E8-D8)/(B7-Rates!B9)")],
        ],
        "Rates": [
            ["Work", "Per hour"],
            ["clear the ground", 18],
            ["lay the beams", Cell("=B2+6")],
            ["roof", Cell("=B3*1.5")],
            ["windows", Cell("=(B3+B4)/2")],
            ["paint", Cell("=MIN(B2:B5)-2")],
            [None],
            ["Dear from", Cell("=SUM(B2:B6)*5")],
            ["Free hours", 2],
        ],
    }
)

MINUTES = docx(
    paragraph("Rowing club: minutes of the meeting in April"),
    paragraph("Chair: Marit Tveit. Present: nine members."),
    paragraph(
        "The treasurer is ", ("del", "Marta Krüger"), ("ins", "Søren Aabye"), ", as voted in March."
    ),
    paragraph(
        "The secretary is ", ("ins", "Zoë Lindqvist"), ("del", "Søren Aabye"), ", as before."
    ),
    paragraph(
        "The boat warden is Łukasz Wrona",
        ("del", ", who also keeps the key of the boathouse"),
        ".",
    ),
    paragraph(
        "The key of the boathouse is kept by the ",
        ("del", "treasurer"),
        ("ins", "secretary"),
        " in office.",
    ),
    paragraph(
        ("ins", "From the first of June the treasurer and the secretary change offices."),
        ("del", "From the first of June the boat warden is also the secretary."),
    ),
    paragraph("The club rows on all Tuesdays until the end of October."),
)


def radio_log() -> bytes:
    """Buoy messages in base64, each with its CRC-32; some were damaged after that."""
    pick = numbers(4242, 0, 999)
    lines: list[str] = []
    for number in range(64):
        buoy = ["K3", "K3", "M1", "R7", "R7", "R7", "T2"][next(pick) % 7]
        depth, heat = 20 + next(pick) % 60, 61 + next(pick) % 40
        text = f"buoy={buoy};depth={depth};temp={heat / 10}"
        check = f"{zlib.crc32(text.encode()):08x}"
        if next(pick) % (2 if buoy == "R7" else 6) == 0:
            text = text.replace(f"depth={depth}", f"depth={depth + 1 + next(pick) % 9}")
        coded = base64.b64encode(f"{text}|{check}".encode()).decode()
        lines.append(f"{number // 4:02d}:{number % 4 * 15:02d} {coded}")
    return "\n".join(lines).encode() + b"\n"


LEVEL_3 = [
    Task(
        "rooms",
        3,
        "By the rules, the rates and the bookings in the attached archive, how many euros does "
        "the member with the number 4138 owe for May 2023?",
        "241.2",
        (
            "unpack",
            "keep the member's bookings of May",
            "count begun half hours",
            "choose the rate",
            "apply cancellations",
            "take off ten percent",
        ),
        15,
        ("archive program", "Python"),
        "zip",
        zip_file(
            {
                "house/bookings.csv": BOOKINGS.encode(),
                "house/rates.json": json.dumps(RATES, indent=1).encode() + b"\n",
                "house/rules.txt": RULES.encode(),
            }
        ),
    ),
    Task(
        "unsaved-plan",
        3,
        "The attached workbook was saved before its formulas were calculated. Which number does "
        "the cell E9 of the sheet Plan show after a full calculation?",
        "34.7",
        ("read the formulas of both sheets", "work out the rates", "work out the plan", "divide"),
        12,
        ("Python", "spreadsheet program"),
        "xlsx",
        PLAN,
    ),
    Task(
        "toll-maze",
        3,
        "The attached picture shows a maze of square cells, 8 by 8 pixels each. A step leads "
        "from a cell to the one above, below, left or right of it; black cells cannot be "
        "entered, and on the whole way at most two orange cells may be entered. How many steps "
        "does the shortest way from the green cell to the blue cell take?",
        "64",
        ("decode the picture", "build the grid", "search with the toll as part of the place"),
        12,
        ("Python", "image viewer"),
        "png",
        png(MAZE, COLOURS, 8),
    ),
    Task(
        "seven-seats",
        3,
        "Ada, Ben, Cleo, Dov, Edda, Finn and Gus sit in a row of seven seats. Exactly two people "
        "sit between Ada and Ben. Cleo sits next to Ada and somewhere to the left of Gus as well "
        "as of Dov, but not next to Gus. Edda and Finn are neighbours, both to the left of Ada, "
        "and Finn does not sit at an end, nor does Gus. Dov and Ben are neighbours. Name the "
        "seven from left to right, separated by commas.",
        "Edda, Finn, Cleo, Ada, Gus, Dov, Ben",
        ("write the conditions down", "try all orders", "check that one is left"),
        8,
    ),
    Task(
        "boathouse-key",
        3,
        "If all tracked changes in the attached minutes are accepted, who keeps the key of the "
        "boathouse in August of that year? Give first and last name.",
        "Søren Aabye",
        (
            "accept insertions and deletions",
            "find the office that keeps the key",
            "find who holds it in August",
        ),
        8,
        ("word processor",),
        "docx",
        MINUTES,
    ),
    Task(
        "radio-log",
        3,
        "Every line of the attached log holds a time and a message in base64. A decoded message "
        "ends with a bar and the CRC-32, in hexadecimal, of all that stands before the bar; a "
        "message whose CRC-32 does not fit is broken. Take the buoy that sent the most messages "
        "that are not broken: what is the sum of the depths in those messages?",
        "783",
        ("decode the lines", "check every sum", "count by buoy", "add up the depths"),
        10,
        ending="txt",
        attachment=radio_log(),
    ),
]
