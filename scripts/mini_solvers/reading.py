"""Reading the attachments' formats, with the standard library alone."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

Grid = list[list[tuple[int, int, int]]]
STEPS = ((1, 0), (-1, 0), (0, 1), (0, -1))
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def accepted(file: Path) -> ElementTree.Element:
    """The document of a .docx with its deletions taken out."""
    with zipfile.ZipFile(file) as package:
        tree = ElementTree.fromstring(package.read("word/document.xml"))
    for parent in list(tree.iter()):
        for gone in parent.findall(WORD + "del"):
            parent.remove(gone)
    return tree


def word_text(element: ElementTree.Element) -> str:
    return "".join(t.text or "" for t in element.iter(WORD + "t"))


def sheets(file: Path) -> dict[str, dict[str, tuple[str, str]]]:
    """Sheet → cell → (text, number or formula; fill colour or "")."""
    with zipfile.ZipFile(file) as package:
        book = ElementTree.fromstring(package.read("xl/workbook.xml"))
        styles = ElementTree.fromstring(package.read("xl/styles.xml"))
        names = [sheet.attrib["name"] for sheet in book.iter(SHEET + "sheet")]
        trees = [
            ElementTree.fromstring(package.read(f"xl/worksheets/sheet{i}.xml"))
            for i, _ in enumerate(names, 1)
        ]
    fills = [
        colour.attrib["rgb"] if (colour := fill.find(f".//{SHEET}fgColor")) is not None else ""
        for fill in styles.iter(SHEET + "fill")
    ]
    formats = styles.find(SHEET + "cellXfs")
    assert formats is not None
    used = [fills[int(xf.attrib["fillId"])] for xf in formats]
    result = {}
    for name, tree in zip(names, trees, strict=True):
        cells = {}
        for cell in tree.iter(SHEET + "c"):
            formula = cell.find(SHEET + "f")
            text = "".join(cell.itertext()) if formula is None else f"={formula.text}"
            cells[cell.attrib["r"]] = (text, used[int(cell.attrib.get("s", "0"))])
        result[name] = cells
    return result


def picture(file: Path, size: int) -> Grid:
    """The colours of a palette PNG (4 bits per pixel), one for each cell of `size` pixels."""
    data, place = file.read_bytes(), 8
    chunks: dict[bytes, bytes] = defaultdict(bytes)
    while place < len(data):
        length, kind = struct.unpack(">I4s", data[place : place + 8])
        chunks[kind] += data[place + 8 : place + 8 + length]
        place += length + 12
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour) == (4, 3)
    palette = list(triples(chunks[b"PLTE"]))
    raw, line = zlib.decompress(chunks[b"IDAT"]), width // 2 + 1
    rows = [raw[y * line : (y + 1) * line] for y in range(0, height, size)]
    assert not any(row[0] for row in rows), "only rows without a filter are read"
    return [[palette[row[1 + x // 2] >> 4] for x in range(0, width, size)] for row in rows]


def triples(data: Iterable[int]) -> Iterable[tuple[int, int, int]]:
    values = iter(data)
    return zip(values, values, values, strict=True)
