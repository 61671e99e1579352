"""Scripts for the questions of level 2."""

from __future__ import annotations

from .moves import Branch, Call, Move, bash, python, submit, turn

UNPACKED = "find chase -type f | sort"

SCRIPTS_2: dict[str, list[Move | Branch]] = {
    # right; its second turn is cut off by the token limit in the middle of a call
    "workshop": [
        turn(
            "A workbook is a zip archive; what is in it?",
            bash("python3 -m zipfile -l @FILE@ | cut -c 1-46"),
        ),
        turn(
            "I write a reader for the sheets. It has to know shared and inline texts, numbers, "
            "formulas and the style of every cell, so it gets a little longer.",
            Call(
                "bash",
                '{"command": "cat > reader.py <<\'EOF\'\\nimport re, zipfile\\n\\nclass Sheet:\\n'
                "    def __init__(self, book, name):\\n        self.cells = {}\\n        for c",
            ),
            finish="length",
        ),
        turn(
            "That was cut off. Shorter: the fill colours first.",
            python("""
                import re, zipfile
                styles = zipfile.ZipFile("@FILE@").read("xl/styles.xml").decode()
                print(re.findall("<fill>.*?</fill>", styles))
                print(re.findall("<xf .*?/>", styles.split("<cellXfs")[1]))
            """),
        ),
        turn(
            "Style 1 and style 2 are the coloured ones. What does the legend say?",
            bash("""
                cat > sheet.py <<'EOF'
                import re, zipfile

                def rows(number):
                    book = zipfile.ZipFile("@FILE@")
                    xml = book.read(f"xl/worksheets/sheet{number}.xml").decode()
                    for row in re.findall("<row.*?</row>", xml):
                        yield [(style or "0", text or value) for style, text, value in re.findall(
                            '<c r="[A-Z]+[0-9]+"(?: s="([0-9])")?[^>]*>'
                            "(?:<is><t>(.*?)</t></is>|<v>(.*?)</v>)", row)]
                EOF
                python3 -c 'from sheet import rows
                for row in rows(3): print(row)'
            """),
        ),
        turn(
            "So style 1 means reserved and style 2 does not. The stock and the prices:",
            bash("python3 -c 'from sheet import rows\nfor row in rows(1): print(row)'"),
            bash("python3 -c 'from sheet import rows\nfor row in rows(2): print(row)'"),
        ),
        turn(
            "All rows but those of style 1, each at its price.",
            bash("""
                python3 -c '
                from sheet import rows
                price = {row[0][1]: int(row[1][1]) for row in list(rows(2))[1:]}
                cents = sum(int(n) * price[part] for (style, part), (_, n) in list(rows(1))[1:]
                            if style != "1")
                print("cents", cents)
                print(f"euros {cents / 100:.2f}")'
            """),
        ),
        turn(
            "The value of what is not reserved.",
            submit("@READ@"),
            read=r"euros ([\d.]+)",
            otherwise="861.30",  # wrong
        ),
    ],
    # right; every command takes what the one before it printed
    "paper-chase": [
        turn("I unpack the archive.", bash("unzip -q @FILE@ -d chase")),
        Branch(
            r"not found",
            turn(
                "There is no unzip here, but Python can do it.",
                bash(f"python3 -m zipfile -e @FILE@ chase && {UNPACKED}"),
            ),
            turn("What did I get?", bash(UNPACKED)),
        ),
        turn(
            "The start, and the number of lines of each file.",
            bash(f"cat chase/start.txt; wc -l $({UNPACKED})"),
        ),
        turn(
            "Exactly one has seven lines.",
            bash("cat @READ@"),
            read=r"^\s*7 (chase\S+)",
            otherwise="chase/attic/window.txt",
        ),
        turn(
            "A name that reads the same both ways: noon.",
            bash("ls -1 chase; cat chase/cellar/noon.txt"),
        ),
        turn(
            "The folder that comes last is yard. Its largest file:",
            bash("wc -c chase/yard/*; cat $(ls -S chase/yard/* | head -n 1)"),
        ),
        turn(
            "Now the digests.",
            bash(f"sha256sum $({UNPACKED}) | grep '^@READ@'"),
            read=r"begins with (\w+)",
            otherwise="0000",
        ),
        turn(
            "There is one such file.",
            bash("cat @READ@"),
            read=r"^[0-9a-f]{64}  (\S+)",
            otherwise="chase/attic/trunk.txt",
        ),
        turn(
            "The chase is over.",
            submit("@READ@"),
            read=r"looking for is the (\w+)",
            otherwise="wren",  # wrong
        ),
    ],
    # right; its first reply also carries reasoning
    "talks": [
        turn(
            "I list the parts of the presentation.",
            bash("python3 -m zipfile -l @FILE@ | cut -c 1-46 | grep -E 'slide[0-9]|notes'"),
            reasoning="The slides hold the planned times. The notes change them, so I have to "
            "read both parts of every slide and keep them apart before I sort anything.",
        ),
        turn(
            "The slides with their texts.",
            bash("""
                cat > texts.py <<'EOF'
                import re, sys, zipfile

                deck = zipfile.ZipFile("@FILE@")
                for number in range(1, 7):
                    xml = deck.read(sys.argv[1].format(number)).decode()
                    print(number, " | ".join(re.findall("<a:t>(.*?)</a:t>", xml)))
                EOF
                python3 texts.py ppt/slides/slide{}.xml
            """),
        ),
        turn("And the notes.", bash("python3 texts.py ppt/notesSlides/notesSlide{}.xml")),
        turn(
            "Bjørn and Ioana exchange 13:45 and 15:15, Noor begins at 16:30, and Yuki 75 minutes "
            "before 13:00, at 11:45.",
            bash("""
                sort <<'EOF' | tee order.txt
                13:00 Tadeusz
                15:15 Bjørn
                16:30 Noor
                13:45 Ioana
                11:45 Yuki
                EOF
                echo "order: $(cut -d' ' -f2 order.txt | paste -sd, | sed 's/,/, /g')"
            """),
        ),
        turn(
            "In this order they speak.",
            submit("@READ@"),
            read=r"^order: (.+)$",
            otherwise="Tadeusz, Bjørn, Noor, Ioana, Yuki",  # wrong
        ),
    ],
    # right; waits for a transcript that nobody writes, until the time is up
    "morse": [
        turn(
            "What kind of recording is it?",
            bash("python3 -c 'import wave; w = wave.open(\"@FILE@\"); print(w.getparams())'"),
        ),
        turn(
            "Perhaps a transcript appears beside it if I wait.",
            bash("echo waiting for a transcript; sleep 600; ls"),
        ),
        turn(
            "Nothing came. Then I measure the tones myself, in steps of ten milliseconds.",
            bash("""
                cat > spans.py <<'EOF'
                import itertools, wave

                w = wave.open("@FILE@")
                data, step = w.readframes(w.getnframes()), w.getframerate() // 100
                loud = [max(data[i:i + step]) - min(data[i:i + step]) > 60
                        for i in range(0, len(data), step)]
                spans = [(on, len(list(g))) for on, g in itertools.groupby(loud)]
                EOF
                python3 -c 'from spans import spans; print(len(spans), spans[:12])'
            """),
        ),
        turn(
            "How long are tones and pauses?",
            bash("""
                python3 -c '
                from collections import Counter
                from spans import spans
                for (on, n), times in sorted(Counter(spans).items()):
                    print("tone" if on else "pause", n, "x", times)'
            """),
        ),
        turn(
            "One unit is 4 steps: dots 4, dashes 12, pauses 4, 12 and 28.",
            bash("""
                python3 - <<'EOF'
                from spans import spans

                codes = (".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. "
                         "--.- .-. ... - ..- ...- .-- -..- -.-- --..").split()
                letters = {code: chr(65 + i) for i, code in enumerate(codes)}
                text = ""
                for on, n in spans[1:]:
                    if on:
                        text += "-" if n > 8 else "."
                    else:
                        text += "" if n < 8 else " " if n < 20 else " / "
                words = [[letters[c] for c in word.split()] for word in text.split("/")]
                print("message:", " ".join("".join(word) for word in words))
                EOF
            """),
        ),
        turn(
            "The message names one tree.",
            submit("@READ@"),
            read=r"message: .* THE (\w+)",
            otherwise="OAK",  # wrong
        ),
    ],
    # right; a PDF's bytes, and a program that is not there
    "rain-gauge": [
        turn("The head of the file:", bash("head -c 180 @FILE@")),
        turn("A PDF. With pdftotext:", bash("pdftotext @FILE@ - | head -n 40")),
        turn(
            "Not installed. The streams are ASCII85 around deflate; Python has both.",
            python("""
                import base64, re, zlib
                data = open("@FILE@", "rb").read()
                with open("pages.txt", "w") as out:
                    for stream in re.findall(rb">>\\nstream\\n(.*?)~>", data, re.DOTALL):
                        text = zlib.decompress(base64.a85decode(stream)).decode("cp1252")
                        for line in re.findall(r"\\((.*)\\) Tj", text):
                            print(line.replace("\\\\", ""), file=out)
                print(sum(1 for _ in open("pages.txt")), "lines")
            """),
        ),
        turn("What does it say?", bash("cat pages.txt")),
        turn(
            "June takes April's 39, August becomes 61.",
            bash("""
                grep -E '^(May|June|July|August|September) ' pages.txt |
                    sed -E 's/^June .*/June 39/; s/^August .*/August 61/' | tee months.txt
                echo "sum: $(($(sed -E 's/.* //' months.txt | paste -sd+)))"
            """),
        ),
        turn(
            "Those are the corrected five months.",
            submit("@READ@"),
            read=r"sum: (\d+)",
            otherwise="280",  # wrong
        ),
    ],
    # wrong: changes of line are taken to cost nothing
    "trams": [
        turn("I read the network.", bash("cat @FILE@")),
        turn(
            "How many sections are there, and which are closed?",
            bash("python3 -c 'import json; n = json.load(open(\"@FILE@\")); "
                 "print({k: len(v) for k, v in n[\"lines\"].items()})'"),
            bash("python3 -c 'import json; print(json.load(open(\"@FILE@\"))[\"closed\"])'"),
        ),
        turn(
            "A search for the quickest way over the open sections.",
            bash("""
                cat > way.py <<'EOF'
                import heapq, json

                net = json.load(open("@FILE@"))
                closed = [set(pair) for pair in net["closed"]]
                roads = {}
                for line, sections in net["lines"].items():
                    for a, b, minutes in sections:
                        if {a, b} not in closed:
                            roads.setdefault(a, []).append((b, minutes, line))
                            roads.setdefault(b, []).append((a, minutes, line))
                queue, seen = [(0, "Aldmoor", [])], set()
                while queue:
                    spent, stop, way = heapq.heappop(queue)
                    if stop == "Quill Head":
                        break
                    if stop not in seen:
                        seen.add(stop)
                        for there, minutes, line in roads[stop]:
                            heapq.heappush(queue, (spent + minutes, there, [*way, (line, there)]))
                EOF
                python3 -c 'from way import way; print(*way, sep="\\n")'
            """),
        ),
        turn("And how long does it take?", bash("python3 -c 'from way import spent\n"
                                                'print("minutes:", spent)\'')),
        turn(
            "This is the quickest trip.",
            submit("@READ@"),
            read=r"minutes: (\d+)",
            otherwise="17",  # wrong
        ),
    ],
    # wrong: the moved days are forgotten
    "market-days": [
        turn(
            "The 30th market comes 29 times nine days after the first. A calendar would help.",
            bash("cal 3 2019"),
        ),
        turn(
            "No cal here, date will do. I note the time of this check, too.",
            bash("date +%T.%N; date -d '2019-03-04' '+%F %A'"),  # its first line varies
        ),
        turn(
            "The first few of them:",
            bash("for n in 1 2 3 4 5; do date -d \"2019-03-04 + $((9 * n)) days\" '+%F %A'; done"),
        ),
        turn(
            "One of these is a Sunday and would be moved, but the plan goes on in steps of nine.",
            bash("echo $((29 * 9)) days; date -d '2019-03-04 + 261 days' '+the 30th: %A'"),
        ),
        turn(
            "That is the day of the week.",
            submit("@READ@"),
            read=r"the 30th: (\w+)",
            otherwise="Monday",  # wrong
        ),
    ],
    # right; a server in the background that later commands ask
    "thermometers": [
        turn(
            "How is the file written?",
            bash("head -n 2 @FILE@ | od -c | head -n 4"),
        ),
        turn(
            "A byte order mark, carriage returns, decimal commas. I make a clean copy.",
            bash(r"""
                mkdir -p site
                sed '1s/^\xEF\xBB\xBF//; s/\r$//; s/,/./' @FILE@ > site/readings.csv
                head -n 4 site/readings.csv; wc -l < site/readings.csv
            """),
        ),
        turn(
            "I serve the folder, so that several programs can read from it.",
            bash("python3 -m http.server 8765 --bind 127.0.0.1 --directory site "
                 ">server.log 2>&1 &\necho started"),
        ),
        turn(
            "Does it answer?",
            bash("curl -s --retry 30 --retry-connrefused --retry-delay 1 "
                 "http://127.0.0.1:8765/readings.csv | tail -n 2"),
        ),
        turn(
            "It does. Now the spans.",
            bash("""
                cat > spans.py <<'EOF'
                import collections, urllib.request

                readings = collections.defaultdict(list)
                with urllib.request.urlopen("http://127.0.0.1:8765/readings.csv") as page:
                    for line in page.read().decode().splitlines()[1:]:
                        station, day, value = line.split(";")
                        readings[station].append(float(value))
                spans = {name: round(max(v) - min(v), 1) for name, v in readings.items()}
                for name in sorted(spans, key=lambda name: -spans[name]):
                    print(name, spans[name])
                EOF
                python3 spans.py
            """),
        ),
        turn(
            "Some readings are missing and have to be skipped.",
            bash("""
                sed -i 's/^        readings/        if value != "n\\/a": readings/' spans.py
                python3 spans.py | tee spans.txt
                echo "largest: $(head -n 3 spans.txt | cut -d' ' -f1 | paste -sd, | sed 's/,/, /g')"
            """),
        ),
        turn(
            "These three, from the largest difference down.",
            submit("@READ@"),
            read=r"^largest: (.+)$",
            otherwise="Oulu, Brno, Åre",  # wrong
        ),
    ],
    # wrong: the right names, but with a full stop behind the last
    "laundry": [
        turn("I read the script.", bash("cat @FILE@")),
        turn("It runs, I hope.", bash("python3 @FILE@")),
        turn("Which functions are there?", bash("grep -n '^def ' @FILE@ | cut -d'(' -f1")),
        turn(
            "I watch which of them are called.",
            python("""
                import re, runpy, sys
                called = set()
                def watch(frame, event, argument):
                    if event == "call" and frame.f_code.co_filename == "@FILE@":
                        called.add(frame.f_code.co_name)
                sys.setprofile(watch)
                runpy.run_path("@FILE@")
                sys.setprofile(None)
                names = re.findall(r"^def (\\w+)", open("@FILE@").read(), re.MULTILINE)
                print("never:", ", ".join(sorted(set(names) - called)))
            """),
        ),
        turn(
            "The others are never executed.",
            submit("@READ@."),
            read=r"^never: (.+)$",
            otherwise="press, starch",  # wrong
        ),
    ],
    # right; a very long output, and arguments that are a list
    "quotients": [
        turn(
            "I make a list of numbers to choose from.",
            bash("seq 1 200000"),
        ),
        turn(
            "Far too many; only three digits matter.",
            Call("bash", '["python3", "-c", "print(len(range(100, 1000)))"]'),
        ),
        turn(
            "The tool wants an object with the command.",
            bash("seq 100 999 | grep -vcE '(.).*\\1'"),
        ),
        turn(
            "That many have three different digits. Now the sum and the quotient.",
            python("""
                found = []
                for n in range(100, 1000):
                    a, b, c = map(int, str(n))
                    if len({a, b, c}) == 3 and n % (a + b + c) == 0:
                        if n // (a + b + c) == 10 * a + c:
                            found.append(n)
                print("found:", ", ".join(map(str, found)))
            """),
        ),
        turn(
            "I check them by hand.",
            bash("""
                list="@READ@"
                for n in ${list//,/}; do
                    sum=$((n / 100 + n / 10 % 10 + n % 10))
                    echo "$n / $sum = $((n / sum)) rest $((n % sum))"
                done
                echo "checked: $list"
            """),
            read=r"^found: (.+)$",
            otherwise="135",
        ),
        turn(
            "All quotients are as they should be.",
            submit("@READ@"),
            read=r"^checked: (.+)$",
            otherwise="135, 315, 405",  # wrong
        ),
    ],
}  # fmt: skip
