"""The questions of level 1."""

from __future__ import annotations

import json
from datetime import date, timedelta

from .formats import docx, paragraph, png, table
from .task import Task, numbers


def picking_list() -> bytes:
    """Orchard rows; remarks hold commas and quotes, so that splitting at commas goes wrong."""
    pick = numbers(1871, 0, 999)
    lines = ["date,row,variety,crates,kg_per_crate,remark"]
    varieties = ["Sternrenette", "Glockenapfel", "Sternrenette", "Kaiser Wilhelm"]
    remarks = ["", "", '"for juice, unsorted"', "returned", "", '"wet, again"', ""]
    for day in range(52):
        when = date(2021, 8, 22) + timedelta(days=day)
        if when.weekday() == 6:
            continue
        variety, remark = varieties[next(pick) % 4], remarks[next(pick) % 7]
        crates, weight = 3 + next(pick) % 12, 11 + next(pick) % 8
        lines.append(f"{when},{1 + next(pick) % 9},{variety},{crates},{weight},{remark}")
    return "\n".join(lines).encode() + b"\n"


LIGHT_LOG = """\
Log of the light on Tarn Skerry, October 1893
(ship, and the way she went past the light)

Night of the 3rd to the 4th
  18:20  lamp lit, wind west, fresh
  19:05  barque Hollin, north to south
  20:41  steamer Grey Petrel, south to north
  22:10  schooner Annis Bell, north to south
  23:58  ketch Two Sisters, south to north
  03:40  ketch Two Sisters, south to north
  06:12  lamp out

Night of the 4th to the 5th
  18:17  lamp lit, hazy
  19:30  schooner Annis Bell, south to north
  21:02  brig Lodestar, north to south
  23:10  steamer Corrie, north to south
  01:25  brig Lodestar, north to south
  02:30  barque Hollin, south to north
  04:05  steamer Corrie, south to north
  06:14  lamp out

Night of the 5th to the 6th
  18:15  lamp lit, calm
  20:20  steamer Grey Petrel, north to south
  21:00  barque Hollin, north to south
  22:47  lugger Kittiwake, south to north
  02:51  lugger Kittiwake, south to north
  06:16  lamp out
"""

LOANS = {
    "library": "Harbour Lane",
    "members": [
        {"name": "Oda", "loans": [
            {"title": "Saltwind", "due": "2022-02-11", "returned": None},
            {"title": "Copper Weather", "due": "2022-02-25", "returned": "2022-02-20"},
        ]},
        {"name": "Piet", "loans": [
            {"title": "Bridges of Tin", "due": "2022-02-28", "returned": "2022-03-04"},
        ]},
        {"name": "Amara", "loans": [
            {"title": "Night Ferry", "due": "2022-03-01", "returned": None},
            {"title": "Ashes and Oats", "due": "2022-01-19", "returned": "2022-03-01"},
            {"title": "Gulls over Brae", "due": "2022-02-14", "returned": None},
        ]},
        {"name": "Lucian", "loans": []},
        {"name": "Sanne", "loans": [
            {"title": "Ninety Lamps", "due": "2022-03-15", "returned": None},
            {"title": "Kelp", "due": "2022-02-02", "returned": "2022-02-02"},
        ]},
    ],
}  # fmt: skip

PARKING = '''\
"""Income of a car park on one day.

Up to 30 minutes are free, a stay of exactly 30 minutes included. A longer stay costs
40 cents for every quarter of an hour that was started, from the first minute on. No
stay costs more than 12 euros.
"""

STAYS = """
08:05-08:35 08:10-11:02 08:31-09:01 08:44-17:59 09:00-09:46 09:15-09:31
09:40-10:10 10:02-12:17 10:20-10:51 11:11-11:41 11:30-15:30 12:00-12:29
12:45-13:16 13:05-20:40 13:30-14:00 14:12-15:12 15:55-16:25 16:10-18:41
"""


def minutes(clock: str) -> int:
    hours, rest = clock.split(":")
    return int(hours) * 60 + int(rest)


def fee(stay: int) -> int:
    """What a stay of so many minutes costs, in cents."""
    if stay < 30:
        return 0
    return min(-(-stay // 15) * 40, 1200)


total = 0
for stay in STAYS.split():
    start, end = stay.split("-")
    total += fee(minutes(end) - minutes(start))
print(total)
'''

PICTURE = """\
....................
.RRR....BBB.....RR..
.R.R....BRB.....R...
.RRR....BBB....RR...
....R..........R....
....RR....GGG.......
..........GRG..R.R..
..YY......G.G...R...
..YR......GGG..R.R..
...R................
RR....RRRR....BBBB..
R.....R..R....BRRB..
......R..R....BBBB.R
""".splitlines()

COLOURS = {
    ".": (245, 245, 240),
    "R": (214, 40, 40),
    "B": (29, 78, 137),
    "G": (60, 140, 80),
    "Y": (247, 190, 60),
}

MENU = docx(
    paragraph("The Copper Kettle — lunch card"),
    table(
        [
            ["Dish", "Euro"],
            ["Pumpkin soup", "4.50"],
            ["Barley soup", "4.25"],
            ["Lentil stew", "7.90"],
            ["Cheese dumplings", "8.35"],
            ["Apple cake", "3.20"],
            ["Pot of tea", "2.60"],
            ["Cider, small glass", "2.95"],
        ]
    ),
    paragraph("On Thursdays every soup costs 20 percent less."),
    paragraph("Whoever orders a stew gets a pot of tea for half its price, on any day."),
    paragraph("Cake is sold at the full price only."),
)

HIKE = """\
# ridge walk, one point per line: kilometre, height in metres
0.0 612
0.8 655
1.5 703
2.1 688
2.9 741
3.6 812
4.0 795
4.7 795
5.2 790
6.0 834
6.6 827
7.1 698
7.9 699
8.3 640
9.0 652
9.4 790
9.9 731
10.5 766
11.2 931
12.0 931
12.6 904
13.3 921
14.1 870
"""

LEVEL_1 = [
    Task(
        "orchard",
        1,
        "The attached file is the picking list of a small orchard for 2021. How many kilograms of "
        "the variety Sternrenette were picked in September, if the rows with the remark "
        '"returned" are not counted?',
        "1777",
        ("read the rows", "keep the variety and the month", "drop the returned", "add up"),
        4,
        ending="csv",
        attachment=picking_list(),
    ),
    Task(
        "light-log",
        1,
        "According to the attached log of a lighthouse, which ship went past the light twice in "
        "one and the same night, the second time in the opposite direction? Give the ship's name "
        "without its type.",
        "Corrie",
        ("read the log night by night", "look for a ship that came back the other way"),
        3,
        ("text viewer",),
        "txt",
        LIGHT_LOG.encode(),
    ),
    Task(
        "reversed-word",
        1,
        "In a letter game a word is first written backwards; then the first letter of the "
        "result is moved on in the alphabet by one place, the second letter by two, and so on, "
        "where z is followed by a. Which English word was turned into mguxxkr?",
        "kestrel",
        ("move the letters back", "reverse the word"),
        3,
    ),
    Task(
        "safe",
        1,
        "A safe has five wheels with the digits 0 to 9. Its owner remembers that every digit of "
        "the code was greater than the one to its left, that the digits add up to 25, and that "
        "exactly three of them were odd. How many codes fit?",
        "14",
        ("list the rising codes", "keep the right sums", "count the odd digits"),
        4,
    ),
    Task(
        "loans",
        1,
        "The attached file lists the loans of a small library. Which titles were due before "
        "1 March 2022 and had not come back before that day? Give the titles in alphabetical "
        "order, separated by commas.",
        "Ashes and Oats, Bridges of Tin, Gulls over Brae, Saltwind",
        ("collect the loans", "compare both dates", "sort the titles"),
        5,
        ending="json",
        attachment=json.dumps(LOANS, indent=1).encode() + b"\n",
    ),
    Task(
        "car-park",
        1,
        "The attached script adds up what a car park earned in a day, but one comparison in it "
        "does not do what the text at its top says. Which total, in cents, does it print once "
        "that comparison is put right?",
        "4880",
        ("read the rules", "find the comparison", "correct it", "run the script"),
        5,
        ending="py",
        attachment=PARKING.encode(),
    ),
    Task(
        "red-shapes",
        1,
        "The attached picture is made of equal square cells. How many red shapes does it show, "
        "if red cells that share an edge belong to one shape and cells that touch only at a "
        "corner do not?",
        "15",
        ("find the size of a cell", "read the colours", "count the connected groups"),
        6,
        ("Python", "image viewer"),
        "png",
        png(PICTURE, COLOURS, 8),
    ),
    Task(
        "lunch-card",
        1,
        "Two friends have lunch on a Thursday with the attached card. One takes a barley soup and "
        "the cheese dumplings, the other a lentil stew, a pot of tea and an apple cake. How much "
        "do they pay together, in euros?",
        "24.15",
        ("read the prices", "read the notes below", "take off both reductions", "add up"),
        4,
        ("text viewer", "calculator"),
        "docx",
        MENU,
    ),
    Task(
        "place-names",
        1,
        "Which of these place names takes the third most bytes when it is written in UTF-8 "
        "(composed letters): Großröhrsdorf, Хабаровск, Ærøskøbing, Kirkjubæjarklaustur, "
        "Θάσος, Llanfairpwll?",
        "Großröhrsdorf",
        ("encode each name", "sort by length"),
        2,
    ),
    Task(
        "ridge-walk",
        1,
        "The attached file holds the points of a ridge walk. Which points are summits, that is "
        "higher than both the point before and the point after them, and lie above 750 metres? "
        "Give their heights in metres in the order of the walk, separated by commas.",
        "812, 834, 790, 921",
        ("read the heights", "compare neighbours", "drop the low ones"),
        4,
        ending="txt",
        attachment=HIKE.encode(),
    ),
]
