"""Scripts for the questions of level 1."""

from __future__ import annotations

from .moves import Branch, Call, Move, bash, python, submit, turn

SCRIPTS_1: dict[str, list[Move | Branch]] = {
    # wrong: forgets to leave the returned rows out
    "orchard": [
        turn(
            "I will look at the beginning of the file and at its length first.",
            bash("head -n 5 @FILE@; wc -l < @FILE@"),
        ),
        turn(
            "The remarks matter. Which ones are there?",
            bash("cut -d, -f6 @FILE@ | sort | uniq -c"),
        ),
        turn(
            "Some remarks hold a comma, so cutting at commas is not safe; a CSV reader is.",
            python("""
                import collections, csv
                rows = list(csv.DictReader(open("@FILE@")))
                count = collections.Counter((r["variety"], r["remark"]) for r in rows)
                for pair, n in sorted(count.items()):
                    print(n, pair)
            """),
        ),
        turn(
            "Now only September.",
            bash("grep '^2021-09' @FILE@ | grep -c Sternrenette"),
        ),
        turn(
            "For these rows I add up crates times kilograms per crate.",
            python("""
                import csv
                rows = csv.DictReader(open("@FILE@"))
                kilos = [int(r["crates"]) * int(r["kg_per_crate"]) for r in rows
                         if r["variety"] == "Sternrenette" and r["date"].startswith("2021-09")]
                print(len(kilos), "rows")
                print("kg =", sum(kilos))
            """),
        ),
        turn(
            "That is the amount for September.",
            submit("@READ@"),
            read=r"kg = (\d+)",
            otherwise="0",  # wrong
        ),
    ],
    # right; begins with a call that has no arguments at all
    "light-log": [
        turn("Let me read the log.", Call("bash", "")),
        turn(
            "The call was empty. Again, and the length of the file beside it.",
            bash("cat @FILE@"),
            bash("wc -l < @FILE@"),
        ),
        turn(
            "A night goes past midnight, so I have to keep to the headings and not to the dates.",
            bash("grep -n 'Night of' @FILE@"),
        ),
        turn(
            "I collect each night's ships and the ways they went.",
            python("""
                import re
                for night in open("@FILE@").read().split("Night of")[1:]:
                    ways = {}
                    for name, way in re.findall(r"  \\w+ ([A-Z][\\w ]+), (\\w+ to \\w+)", night):
                        ways.setdefault(name, []).append(way)
                    for name, seen in ways.items():
                        print(name, "|", " / ".join(seen), "<-- both" if len(set(seen)) > 1 else "")
            """),
        ),
        turn(
            "Only one ship has both ways in one night. I look at its lines once more.",
            bash("grep -n '@READ@' @FILE@"),
            read=r"^(.+?) \|.*<-- both",
            otherwise="steamer",
        ),
        turn(
            "Down at 23:10 and up again at 04:05, the same night.",
            submit("@READ@"),
            read=r"steamer (\w+), south to north",
            otherwise="Grey Petrel",  # wrong
        ),
    ],
    # right; a program that fails, one that prints nothing, and the same command twice
    "reversed-word": [
        turn(
            "First the letters with their places.",
            bash("echo mguxxkr | fold -w 1 | cat -n"),
        ),
        turn(
            "Now each letter back by its place.",
            python("""
                word = "mguxxkr"
                print("".join(chr((ord(c) - i) % 26) for i, c in enumerate(word, "1")))
            """),
        ),
        turn(
            "enumerate wants a number to start from. And the letter a must count as 0.",
            bash("python3 -c \"'mguxxkr'; [chr((ord(c)-97-i)%26+97) "
                 "for i, c in enumerate('mguxxkr', 1)]\""),
        ),
        turn(
            "No output? I try it once more.",
            bash("python3 -c \"'mguxxkr'; [chr((ord(c)-97-i)%26+97) "
                 "for i, c in enumerate('mguxxkr', 1)]\""),
        ),
        turn(
            "Of course: a program has to print what it finds.",
            python("""
                letters = [chr((ord(c) - 97 - i) % 26 + 97) for i, c in enumerate("mguxxkr", 1)]
                print("letters", "".join(letters))
                print("word:", "".join(reversed(letters)))
            """),
        ),
        turn(
            "I turn the word into its code again, to be sure.",
            bash("""
                word=@READ@
                echo "$word gives $(echo $word | rev | python3 -c 'print("".join(
                chr((ord(c)-97+i)%26+97) for i,c in enumerate(input(),1)))')"
            """),
            read=r"word: (\w+)",
            otherwise="lertsek",
        ),
        turn(
            "It fits.",
            submit("@READ@"),
            read=r"(\w+) gives mguxxkr",
            otherwise="lertsek",  # wrong
        ),
    ],
    # no answer: talks, and never calls a tool
    "safe": [
        turn(
            "The digits rise, so a code is just a choice of five of the ten digits. I have to "
            "find the choices with the sum 25 and three odd digits among them."
        ),
        turn(
            "Three odd digits out of 1, 3, 5, 7, 9 and two even ones out of 0, 2, 4, 6, 8. For "
            "1, 3, 5 the two even ones would have to add up to 16, which is too much; for 1, 3, 7 "
            "they add up to 14: that is 6 and 8."
        ),
        turn(
            "Going on like this there are several more choices; I would say about a dozen codes "
            "fit, but I am still counting them."
        ),
    ],
    # right; begins with arguments that are broken JSON
    "loans": [
        turn(
            "I have a look at the file.",
            Call("bash", '{"command": "python3 -m json.tool @FILE@ | head -n 40'),
        ),
        turn(
            "My arguments were not closed. Once more.",
            bash("python3 -m json.tool @FILE@ | head -n 40"),
        ),
        turn(
            "How many loans are there, and how many are still out?",
            bash("grep -c '\"title\"' @FILE@"),
            bash("grep -c '\"returned\": null' @FILE@"),
        ),
        turn(
            "Due before the first of March, and not back before that day. Dates written this way "
            "can be compared as texts.",
            python("""
                import json
                day, late = "2022-03-01", []
                for member in json.load(open("@FILE@"))["members"]:
                    for loan in member["loans"]:
                        back = loan["returned"] or "never"
                        print(loan["title"], loan["due"], back, sep=" | ")
                        if loan["due"] < day and back >= day:
                            late.append(loan["title"])
                print("late:", ", ".join(sorted(late)))
            """),
        ),
        turn(
            "Ashes and Oats came back on the day itself, so it had not come back before.",
            submit("@READ@"),
            read=r"^late: (.+)$",
            otherwise="Saltwind",  # wrong
        ),
    ],
    # right; tries to write to the attachment, which is read-only
    "car-park": [
        turn("I read the script.", bash("cat @FILE@")),
        turn("And what does it print as it is?", bash("python3 @FILE@")),
        turn(
            "A stay of exactly 30 minutes should be free, but `stay < 30` charges it. I leave a "
            "remark in the file.",
            bash("echo '# the comparison in fee() is wrong' >> @FILE@"),
        ),
        turn(
            "The attachment cannot be written. A copy, then.",
            bash("sed 's/stay < 30/stay <= 30/' @FILE@ > mended.py; diff @FILE@ mended.py"),
        ),
        turn(
            "One line differs, as it should.",
            bash('echo "total: $(python3 mended.py)"'),
        ),
        turn(
            "That is the corrected total.",
            submit("@READ@"),
            read=r"total: (\d+)",
            otherwise="5360",  # wrong
        ),
    ],
    # right; prints bytes of the picture, looks for a package that is not there
    "red-shapes": [
        turn("What kind of picture is it?", bash("head -c 48 @FILE@; echo")),
        turn(
            "A PNG. With an imaging package this is short.",
            bash("python3 -c 'from PIL import Image; print(Image.open(\"@FILE@\").size)'"),
        ),
        turn(
            "No such package. I look at the header by hand.",
            bash("od -An -tx1 -j 16 -N 13 @FILE@"),
        ),
        turn(
            "160 by 104 pixels, 4 bits each, with a palette. I write a small reader.",
            bash("""
                cat > pixels.py <<'EOF'
                import struct, zlib

                data = open("@FILE@", "rb").read()

                def chunk(name):
                    start = data.index(name)
                    size, = struct.unpack(">I", data[start - 4:start])
                    return data[start + 4:start + 4 + size]

                width, height = struct.unpack(">II", chunk(b"IHDR")[:8])
                colours = chunk(b"PLTE")
                palette = [tuple(colours[i:i + 3]) for i in range(0, len(colours), 3)]
                raw = zlib.decompress(chunk(b"IDAT"))
                line = width // 2 + 1
                cells = [[raw[y * line + 1 + x // 2] >> 4 for x in range(0, width, 8)]
                         for y in range(0, height, 8)]
                EOF
                python3 -c 'from pixels import *; print(width, height, palette)
                for row in cells: print("".join(".RBGY"[c] for c in row))'
            """),
        ),
        turn(
            "The colour R is the red one. I count groups, corners included for a start.",
            bash("""
                cat > count.py <<'EOF'
                from pixels import cells

                def groups(steps):
                    red = {(x, y) for y, row in enumerate(cells)
                           for x, colour in enumerate(row) if colour == 1}
                    n = 0
                    while red:
                        n, edge = n + 1, [red.pop()]
                        while edge:
                            x, y = edge.pop()
                            near = {(x + a, y + b) for a, b in steps} & red
                            red -= near
                            edge += near
                    return n
                EOF
                python3 -c 'from count import groups
                print("with corners", groups([(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]))'
            """),
        ),
        turn(
            "The question says that corners do not join shapes.",
            bash("python3 -c 'from count import groups\n"
                 'print("with edges", groups([(1, 0), (-1, 0), (0, 1), (0, -1)]))\''),
        ),
        turn(
            "So many shapes.",
            submit("@READ@"),
            read=r"with edges (\d+)",
            otherwise="10",  # wrong
        ),
    ],
    # wrong: the right sum, but with its unit
    "lunch-card": [
        turn("A Word file is a zip archive.", bash("python3 -m zipfile -l @FILE@ | cut -c 1-46")),
        turn(
            "The text is in word/document.xml.",
            python("""
                import re, zipfile
                xml = zipfile.ZipFile("@FILE@").read("word/document.xml").decode()
                for block in re.findall("<w:tr>.*?</w:tr>|<w:p>.*?</w:p>", xml):
                    print("\\t".join(re.findall("<w:t [^>]*>(.*?)</w:t>", block)))
            """),
        ),
        turn(
            "The soup costs a fifth less on a Thursday.",
            bash("python3 -c 'print(round(4.25 * 0.8 + 8.35 + 7.90 + 2.60 + 3.20, 2))'"),
        ),
        turn(
            "I forgot that the stew comes with the tea at half its price.",
            bash("python3 -c 'print(f\"sum {4.25 * 0.8 + 8.35 + 7.90 + 2.60 / 2 + 3.20:.2f}\")'"),
        ),
        turn(
            "Together that is what they pay.",
            submit("@READ@ euros"),
            read=r"sum ([\d.]+)",
            otherwise="25.45",  # wrong
        ),
    ],
    # wrong: in capitals ß becomes SS, and no rule of the scorer undoes that; parallel calls, and
    # bytes that are no UTF-8
    "place-names": [
        turn(
            "Three of the names hold letters of their own; I count their bytes at once.",
            bash("printf %s Хабаровск | wc -c"),
            bash("printf %s Kirkjubæjarklaustur | wc -c"),
            bash("printf %s Θάσος | wc -c"),
        ),
        turn(
            "In an older encoding it would be one byte per letter; just to see the difference:",
            bash("printf 'Gro\\xdfr\\xf6hrsdorf \\xc6r\\xf8sk\\xf8bing\\n'"),
        ),
        turn(
            "Now all six in order, in capitals so that no small difference is overlooked.",
            python("""
                names = ["Großröhrsdorf", "Хабаровск", "Ærøskøbing", "Kirkjubæjarklaustur",
                         "Θάσος", "Llanfairpwll"]
                names.sort(key=lambda name: -len(name.encode()))
                for place, name in enumerate(names, 1):
                    print(f"{place}. {name.upper()} ({len(name.encode())} bytes)")
            """),
        ),
        turn(
            "The third of them is asked for.",
            submit("@READ@"),
            read=r"^\s*3\. (\w+) \(",
            otherwise="ÆRØSKØBING",
        ),
    ],
    # wrong: counts the edge of a level stretch as a summit
    "ridge-walk": [
        turn("I look at the points.", bash("head -n 6 @FILE@")),
        turn("How many are there?", bash("grep -vc '^#' @FILE@")),
        turn(
            "The high ones come first to mind.",
            bash("grep -v '^#' @FILE@ | while read km m; do [ $m -gt 750 ] && echo $km $m; done"),
        ),
        turn(
            "Now those that are higher than the point before and not lower than the point after.",
            python("""
                h = [int(line.split()[1]) for line in open("@FILE@") if line[0] != "#"]
                tops = [b for a, b, c in zip(h, h[1:], h[2:]) if a < b >= c and b > 750]
                print("summits:", ", ".join(map(str, tops)))
            """),
        ),
        turn(
            "These are the summits in the order of the walk.",
            submit("@READ@"),
            read=r"summits: (.+)",
            otherwise="931",  # wrong
        ),
    ],
}  # fmt: skip
