"""Writers for the attachments' file formats: small, valid, and the same bytes on every machine.

Nothing here compresses: the output of a compressor differs between versions of zlib, so that a
regenerated file would not be the committed one. Where a format insists on deflate (PNG, PDF),
the data goes into its uncompressed blocks.
"""

from __future__ import annotations

import base64
import io
import struct
import wave
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
KIND = "application/vnd.openxmlformats-officedocument."


def zip_file(files: Mapping[str, bytes]) -> bytes:
    """A ZIP archive of the given files, in their order, with one fixed date."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
    return buffer.getvalue()


def office_package(parts: Mapping[str, tuple[str, str]], links: Sequence[Link]) -> bytes:
    """An OOXML package. `parts`: path → (content type, XML without its first line)."""
    overrides = "".join(
        f'<Override PartName="/{path}" ContentType="{kind}"/>' for path, (kind, _) in parts.items()
    )
    files = {
        "[Content_Types].xml": f'{XML}<Types xmlns="{PACKAGE}/content-types">'
        f'<Default Extension="rels" ContentType="application/vnd.openxmlformats-package'
        f'.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/>'
        f"{overrides}</Types>"
    }
    for owner in dict.fromkeys(link.owner for link in links):
        folder, _, name = owner.rpartition("/")
        rows = "".join(
            f'<Relationship Id="{link.id}" Type="{OFFICE}/{link.kind}" Target="{link.target}"/>'
            for link in links
            if link.owner == owner
        )
        files[f"{folder}/_rels/{name}.rels".lstrip("/")] = (
            f'{XML}<Relationships xmlns="{PACKAGE}/relationships">{rows}</Relationships>'
        )
    files |= {path: XML + body for path, (_, body) in parts.items()}
    return zip_file({name: text.encode() for name, text in files.items()})


@dataclass(frozen=True)
class Link:
    """One relationship of an OOXML part; `owner` is "" for the package itself."""

    owner: str
    id: str
    kind: str
    target: str


@dataclass(frozen=True)
class Cell:
    """A spreadsheet cell with a formula (`=…`, stored without a result) or a fill colour."""

    value: str | int | float
    fill: str = ""


def xlsx(sheets: Mapping[str, Sequence[Sequence[str | int | float | Cell | None]]]) -> bytes:
    """A workbook; the rows of each sheet start at A1, `None` leaves a cell out."""
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    fills: dict[str, int] = {"": 0}
    bodies: list[str] = []
    for rows in sheets.values():
        lines: list[str] = []
        for number, row in enumerate(rows, 1):
            cells: list[str] = []
            for column, given in enumerate(row):
                if given is None:
                    continue
                cell = given if isinstance(given, Cell) else Cell(given)
                style = fills.setdefault(cell.fill, len(fills))
                head = f'<c r="{chr(65 + column)}{number}"' + (f' s="{style}"' if style else "")
                if isinstance(cell.value, str) and cell.value.startswith("="):
                    cells.append(f"{head}><f>{escape(cell.value[1:])}</f></c>")
                elif isinstance(cell.value, str):
                    text = escape(cell.value)
                    cells.append(f'{head} t="inlineStr"><is><t>{text}</t></is></c>')
                else:
                    cells.append(f"{head}><v>{cell.value}</v></c>")
            lines.append(f'<row r="{number}">{"".join(cells)}</row>')
        bodies.append(
            f'<worksheet xmlns="{space}"><sheetData>{"".join(lines)}</sheetData></worksheet>'
        )
    listed = "".join(
        f'<sheet name="{escape(name)}" sheetId="{i}" r:id="rId{i}"/>'
        for i, name in enumerate(sheets, 1)
    )
    colours = "".join(
        f'<fill><patternFill patternType="solid"><fgColor rgb="FF{fill}"/></patternFill></fill>'
        for fill in fills
        if fill
    )
    styles = "".join(
        f'<xf numFmtId="0" fontId="0" fillId="{i and i + 1}" borderId="0" xfId="0" applyFill="1"/>'
        for i in range(len(fills))
    )
    parts = {
        "xl/workbook.xml": (
            f"{KIND}spreadsheetml.sheet.main+xml",
            f'<workbook xmlns="{space}" xmlns:r="{OFFICE}"><sheets>{listed}</sheets></workbook>',
        ),
        "xl/styles.xml": (
            f"{KIND}spreadsheetml.styles+xml",
            f'<styleSheet xmlns="{space}"><fonts count="1"><font><sz val="11"/><name '
            f'val="Calibri"/></font></fonts><fills count="{len(fills) + 1}"><fill><patternFill '
            f'patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>{colours}'
            f'</fills><borders count="1"><border/></borders><cellStyleXfs count="1"><xf numFmtId='
            f'"0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs><cellXfs count="{len(fills)}">'
            f'{styles}</cellXfs><cellStyles count="1"><cellStyle name="Normal" xfId="0" '
            'builtinId="0"/></cellStyles></styleSheet>',
        ),
    }
    links = [
        Link("", "rId1", "officeDocument", "xl/workbook.xml"),
        Link("xl/workbook.xml", f"rId{len(bodies) + 1}", "styles", "styles.xml"),
    ]
    for i, body in enumerate(bodies, 1):
        parts[f"xl/worksheets/sheet{i}.xml"] = (f"{KIND}spreadsheetml.worksheet+xml", body)
        links.append(Link("xl/workbook.xml", f"rId{i}", "worksheet", f"worksheets/sheet{i}.xml"))
    return office_package(parts, links)


EDITOR = 'w:author="Secretary" w:date="2020-01-01T00:00:00Z"'


def paragraph(*runs: str | tuple[str, str]) -> str:
    """A Word paragraph of plain text and of tracked changes `("ins" | "del", text)`."""
    body = ""
    for run in runs:
        change, text = ("", run) if isinstance(run, str) else run
        tag = "delText" if change == "del" else "t"
        piece = f'<w:r><w:{tag} xml:space="preserve">{escape(text)}</w:{tag}></w:r>'
        number = abs(zlib.crc32(text.encode())) % 9999
        body += f'<w:{change} w:id="{number}" {EDITOR}>{piece}</w:{change}>' if change else piece
    return f"<w:p>{body}</w:p>"


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Word table."""
    grid = "<w:gridCol/>" * len(rows[0])
    lines = "".join(
        "<w:tr>" + "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) + "</w:tr>"
        for row in rows
    )
    return f"<w:tbl><w:tblPr/><w:tblGrid>{grid}</w:tblGrid>{lines}</w:tbl>"


def docx(*blocks: str) -> bytes:
    """A Word document of `paragraph`s and `table`s."""
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = f'<w:document xmlns:w="{space}"><w:body>{"".join(blocks)}<w:sectPr/></w:body>'
    return office_package(
        {
            "word/document.xml": (
                f"{KIND}wordprocessingml.document.main+xml",
                f"{body}</w:document>",
            )
        },
        [Link("", "rId1", "officeDocument", "word/document.xml")],
    )


def pdf(pages: Sequence[Sequence[str]]) -> bytes:
    """A PDF of text lines in Helvetica; page contents are deflate blocks written in ASCII85."""
    count = len(pages)
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for i, lines in enumerate(pages):
        shown = "\n".join(
            "({}) Tj T*".format(line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)"))
            for line in lines
        )
        text = f"BT\n/F1 11 Tf\n16 TL\n60 780 Td\n{shown}\nET\n".encode("cp1252")
        data = base64.a85encode(deflate(text), wrapcol=76) + b"~>"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {5 + 2 * i} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode(),
            f"<< /Length {len(data)} /Filter [/ASCII85Decode /FlateDecode] >>\nstream\n".encode()
            + data
            + b"\nendstream",
        ]
    out = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"
    places: list[int] = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    size = len(objects) + 1
    rows = "".join(f"{place:010d} 00000 n \n" for place in places)
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + f"xref\n0 {size}\n0000000000 65535 f \n{rows}{trailer}".encode()


def png(cells: Sequence[str], colours: Mapping[str, tuple[int, int, int]], size: int) -> bytes:
    """A picture of square cells, `size` (even) pixels wide: a row of letters per row of cells."""
    index = {letter: i for i, letter in enumerate(colours)}
    raw = b""
    for row in cells:
        half = b"".join(bytes([index[letter] * 17]) * (size // 2) for letter in row)
        raw += (b"\0" + half) * size
    header = struct.pack(">IIBBBBB", len(cells[0]) * size, len(cells) * size, 4, 3, 0, 0, 0)
    palette = b"".join(bytes(colour) for colour in colours.values())
    chunks = [(b"IHDR", header), (b"PLTE", palette), (b"IDAT", deflate(raw)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def deflate(data: bytes) -> bytes:
    """A zlib stream of stored blocks only, the same bytes under every version of zlib."""
    blocks = [data[i : i + 65535] for i in range(0, len(data), 65535)] or [b""]
    body = b"".join(
        struct.pack("<BHH", i == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
        for i, block in enumerate(blocks)
    )
    return b"\x78\x01" + body + struct.pack(">I", zlib.adler32(data))


def wav(tones: Sequence[tuple[bool, int]], unit: int, rate: int) -> bytes:
    """A mono 8-bit recording: (sounding?, length in units), one unit being `unit` samples."""
    cycle = bytes([128, 198, 228, 198, 128, 58, 28, 58])  # integers: no platform's sine matters
    sound = b""
    for sounding, length in tones:
        samples = unit * length
        sound += (cycle * (samples // 8 + 1))[:samples] if sounding else b"\x80" * samples
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(1)
        out.setframerate(rate)
        out.writeframes(sound)
    return buffer.getvalue()
