"""Scripts for the questions of level 3."""

from __future__ import annotations

from .moves import Branch, Call, Move, bash, python, submit, turn

SCRIPTS_3: dict[str, list[Move | Branch]] = {
    # right; begins with a tool that does not exist
    "rooms": [
        turn(
            "I open the archive.",
            Call("python", {"code": "import zipfile; zipfile.ZipFile('@FILE@').extractall()"}),
        ),
        turn(
            "There is only bash. Then through bash.",
            bash("python3 -m zipfile -e @FILE@ . && find house -type f | sort"),
        ),
        turn(
            "All three files.",
            bash("cat house/rules.txt"),
            bash("cat house/rates.json"),
            bash("head -n 4 house/bookings.csv; wc -l < house/bookings.csv"),
        ),
        turn(
            "The member's bookings of May:",
            bash("grep -E ',2023-05-.*,4138,' house/bookings.csv"),
        ),
        turn(
            "I work out every booking by itself.",
            bash("""
                cat > bill.py <<'EOF'
                import csv, datetime, json

                rates = json.load(open("house/rates.json"))
                total = 0
                for b in csv.DictReader(open("house/bookings.csv")):
                    if b["member"] != "4138" or not b["date"].startswith("2023-05"):
                        continue
                    start, end = (int(t[:2]) * 60 + int(t[3:]) for t in (b["from"], b["to"]))
                    halves = max(2, -(-(end - start) // 30))
                    day = datetime.date.fromisoformat(b["date"])
                    dear = day.weekday() > 4 or b["date"] in rates["holidays"]
                    kind = "weekend" if dear else "weekday"
                    cents = halves * rates["cents_per_hour"][b["room"]][kind] / 2
                    if b["status"] == "cancelled":
                        cents /= 4
                    elif b["status"] != "held":
                        cents = 0
                    print(b["id"], b["room"], b["date"], kind, halves, cents)
                    total += cents
                print("cents", total)
                EOF
                python3 bill.py | tee bill.txt
            """),
        ),
        turn(
            "4138 ends in an even digit: ten percent less.",
            bash("python3 -c 'print(f\"owed {@READ@ * 0.9 / 100:.2f}\")'"),
            read=r"^cents ([\d.]+)",
            otherwise="0",
        ),
        turn(
            "That is what the member owes.",
            submit("@READ@"),
            read=r"owed ([\d.]+)",
            otherwise="268",  # wrong
        ),
    ],
    # the context runs over: everything is printed again and again
    "unsaved-plan": [
        turn(
            "I list the workbook's parts.",
            bash("python3 -m zipfile -l @FILE@ | cut -c 1-46"),
        ),
        turn(
            "The formulas of the first sheet:",
            bash("""
                python3 -m zipfile -e @FILE@ book
                grep -o '<c r="[A-Z][0-9]*"><f>[^<]*' book/xl/worksheets/sheet1.xml
            """),
        ),
        turn(
            "And of the second:",
            bash("""
                grep -oE '<c r="[A-Z][0-9]+">(<f>|<v>)[^<]*' book/xl/worksheets/sheet2.xml
            """),
        ),
        turn(
            "A lot hangs together here. I want to see every cell for every free hour.",
            bash("""
                for hours in $(seq 1 60); do
                    echo "== with $hours free hours"
                    grep -oE '<f>[^<]*' book/xl/worksheets/sheet1.xml
                done
            """),
        ),
        turn(
            "And once more with the numbers.",
            bash("for i in $(seq 1 40); do cat book/xl/worksheets/sheet*.xml; echo; done"),
        ),
        turn("", overflow=True),
    ],
    # no answer: never content with its way, until the steps are used up
    "toll-maze": [
        turn("A picture. Its header:", bash("od -An -tu1 -N 29 @FILE@")),
        turn(
            "168 by 168 pixels, so 21 by 21 cells. I write the cells down as letters.",
            bash("""
                cat > cells.py <<'EOF'
                import struct, zlib

                data = open("@FILE@", "rb").read()
                start = data.index(b"IDAT")
                size, = struct.unpack(">I", data[start - 4:start])
                raw = zlib.decompress(data[start + 4:start + 4 + size])
                with open("maze.txt", "w") as out:
                    for y in range(21):
                        row = raw[y * 8 * 85 + 1:][:84]
                        print("".join("#.oSE"[row[x * 4] >> 4] for x in range(21)), file=out)
                EOF
                python3 cells.py; wc maze.txt
            """),
        ),
        turn("Here it is.", bash("cat maze.txt")),
        turn(
            "With colours it is easier to see.",
            bash(r"""
                paint() { sed "s/$1/\x1b[$2m  \x1b[0m/g"; }
                paint '#' 40 < maze.txt | paint '[.]' 47 | paint o 43
            """),
        ),
        turn(
            "The shortest way without looking at the toll:",
            bash("""
                cat > way.py <<'EOF'
                import collections, sys

                maze = open("maze.txt").read().split()
                limit = int(sys.argv[1])
                queue, seen = collections.deque([(1, 1, 0, 0)]), set()
                while queue:
                    x, y, paid, steps = queue.popleft()
                    if maze[y][x] == "E":
                        print("steps", steps)
                        break
                    for a, b in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                        c = maze[y + b][x + a]
                        if c != "#" and (x + a, y + b) not in seen and paid + (c == "o") <= limit:
                            seen.add((x + a, y + b))
                            queue.append((x + a, y + b, paid + (c == "o"), steps + 1))
                else:
                    sys.exit("no way")
                EOF
                python3 way.py 99
            """),
        ),
        turn("And with at most two orange cells?", bash("python3 way.py 2")),
        turn(
            "I am not sure whether it is right to remember only the place. With one and with none:",
            bash("python3 way.py 1"),
            bash("python3 way.py 0"),
        ),
        turn("How many orange cells are there at all?", bash("grep -o o maze.txt | wc -l")),
        turn(
            "I try every pair of them, with a sign of life for each.",
            bash("""
                for i in 1 2 3 4 5; do printf '\\rpair %d of 5' $i; sleep 0.1; done; echo
                exit 3
            """),
        ),
        turn("That ended early. The rows with toll cells:", bash("grep -n o maze.txt")),
        turn("Perhaps from the other end.", bash("rev maze.txt | tac | head -n 5")),
        turn(
            "Or turned on its side.",
            bash("for i in 2 20; do cut -c $i maze.txt | paste -sd ''; done"),
        ),
    ],
    # right; the answer is submitted between two other calls
    "seven-seats": [
        turn(
            "How many orders are there?",
            bash("python3 -c 'import math; print(math.factorial(7))'"),
        ),
        turn(
            "Few enough to try them all.",
            python("""
                import itertools
                for row in itertools.permutations(names):
                    print(row)
            """),
        ),
        turn(
            "The names were missing, and the conditions.",
            python("""
                import itertools
                names = ["Ada", "Ben", "Cleo", "Dov", "Edda", "Finn", "Gus"]
                fits = 0
                for row in itertools.permutations(names):
                    a, b, c, d, e, f, g = map(row.index, names)
                    if abs(a - b) == 3 and abs(c - a) == 1 and c < g and c < d and abs(c - g) > 1:
                        if abs(e - f) == 1 and e < a and f < a and f not in (0, 6):
                            if g not in (0, 6) and abs(d - b) == 1:
                                fits += 1
                                print("row:", ", ".join(row))
                print(fits, "fits")
            """),
        ),
        turn(
            "Just one row fits. I keep it, hand it in and tidy up.",
            bash("echo '@READ@' > seats.txt; wc -w < seats.txt"),
            submit("@READ@"),
            bash("rm -f seats.txt"),
            read=r"row: (.+)$",
            otherwise="Finn, Edda, Cleo, Ada, Gus, Dov, Ben",  # wrong
        ),
    ],
    # refused, for no good reason
    "boathouse-key": [
        turn(
            "I list the parts of the document.",
            bash("python3 -m zipfile -l @FILE@ | cut -c 1-46"),
        ),
        turn(
            "Its paragraphs with the changes:",
            python("""
                import re, zipfile
                xml = zipfile.ZipFile("@FILE@").read("word/document.xml").decode()
                xml = re.sub("<w:ins [^>]*>", "[+", re.sub("<w:del [^>]*>", "[-", xml))
                xml = re.sub("</w:(ins|del)>", "]", xml)
                for p in re.findall("<w:p>.*?</w:p>", xml):
                    print(re.sub("<[^>]*>", "", p))
            """),
        ),
        turn(
            "How many changes are there of each kind?",
            bash("python3 -m zipfile -e @FILE@ minutes; cd minutes/word; "
                 "for k in ins del; do echo $k $(grep -o \"<w:$k \" document.xml | wc -l); done"),
        ),
        turn(
            "I read it with all changes accepted.",
            python("""
                import re
                xml = open("minutes/word/document.xml").read()
                xml = re.sub("<w:del .*?</w:del>", "", xml)
                print(re.sub("<[^>]*>", "", xml.replace("</w:p>", "\\n")))
            """),
        ),
        turn(
            "",
            refusal="I'm sorry, but I can't help with finding out who holds the key of a building.",
        ),
    ],
    # right; decodes in the background and waits for it
    "radio-log": [
        turn("The first lines:", bash("head -n 3 @FILE@; wc -l < @FILE@")),
        turn(
            "One message in plain text.",
            bash("head -n 1 @FILE@ | cut -d' ' -f2 | base64 -d"),
        ),
        turn(
            "I decode all of them in the background.",
            bash("""
                (while read -r time code; do
                    echo "$time $(echo "$code" | base64 -d)"
                done < @FILE@ > plain.tmp; mv plain.tmp plain.txt) >/dev/null 2>&1 &
                echo decoding
            """),
        ),
        turn(
            "Is it ready?",
            bash("""
                for i in $(seq 40); do [ -e plain.txt ] && break; sleep 0.1; done
                tail -n 2 plain.txt
            """),
        ),
        turn(
            "Now the checks, with a counter on the way.",
            bash("""
                cat > check.py <<'EOF'
                import collections, zlib

                kept = collections.defaultdict(list)
                for number, line in enumerate(open("plain.txt"), 1):
                    body, _, check = line.split()[1].partition("|")
                    print(f"\\rchecked {number:2d} of 64", end="", flush=True)
                    if zlib.crc32(body.encode()) == int(check, 16):
                        fields = dict(part.split("=") for part in body.split(";"))
                        kept[fields["buoy"]].append(int(fields["depth"]))
                print()
                for buoy in sorted(kept):
                    print(f"\\x1b[1m{buoy}\\x1b[0m", len(kept[buoy]), "good messages")
                EOF
                python3 check.py
            """),
        ),
        turn(
            "K3 has most of the good messages, although R7 sent more in all.",
            bash("python3 -c 'from check import kept\n"
                 "print(\"depths\", sum(kept[\"K3\"]))' | tail -n 1"),
        ),
        turn(
            "The sum of its depths.",
            submit("@READ@"),
            read=r"depths (\d+)",
            otherwise="1547",  # wrong
        ),
    ],
}  # fmt: skip
