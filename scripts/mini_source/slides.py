"""A writer for PowerPoint files with speaker notes, byte-stable like the other formats."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from .formats import KIND, OFFICE, Link, office_package

DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SPACES = (
    f'xmlns:a="{DRAWING}" xmlns:r="{OFFICE}" '
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
)
ROOT = (
    '<p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr>'
    '<p:grpSpPr><a:xfrm><a:off x="0" y="0"/><a:ext cx="0" cy="0"/><a:chOff x="0" y="0"/>'
    '<a:chExt cx="0" cy="0"/></a:xfrm></p:grpSpPr>'
)
COLOURS = {
    "dk1": "000000", "lt1": "FFFFFF", "dk2": "1F2A44", "lt2": "EEEEEE", "accent1": "4472C4",
    "accent2": "ED7D31", "accent3": "A5A5A5", "accent4": "FFC000", "accent5": "5B9BD5",
    "accent6": "70AD47", "hlink": "0563C1", "folHlink": "954F72",
}  # fmt: skip
MAPPED = {"bg1": "lt1", "tx1": "dk1", "bg2": "lt2", "tx2": "dk2"}


def pptx(slides: Sequence[tuple[str, Sequence[str], str]]) -> bytes:
    """A presentation of slides (title, lines, speaker's note)."""
    names = range(1, len(slides) + 1)
    listed = "".join(f'<p:sldId id="{255 + i}" r:id="rId{i + 2}"/>' for i in names)
    parts = {
        "ppt/presentation.xml": (
            f"{KIND}presentationml.presentation.main+xml",
            f'<p:presentation {SPACES}><p:sldMasterIdLst><p:sldMasterId id="2147483648" '
            'r:id="rId1"/></p:sldMasterIdLst><p:notesMasterIdLst><p:notesMasterId r:id="rId2"/>'
            f"</p:notesMasterIdLst><p:sldIdLst>{listed}</p:sldIdLst>"
            '<p:sldSz cx="9144000" cy="6858000"/><p:notesSz cx="6858000" cy="9144000"/>'
            "</p:presentation>",
        ),
        "ppt/slideMasters/slideMaster1.xml": (
            f"{KIND}presentationml.slideMaster+xml",
            f"<p:sldMaster {SPACES}>{_sheet('')}{_colour_map()}<p:sldLayoutIdLst><p:sldLayoutId "
            'id="2147483649" r:id="rId1"/></p:sldLayoutIdLst></p:sldMaster>',
        ),
        "ppt/slideLayouts/slideLayout1.xml": (
            f"{KIND}presentationml.slideLayout+xml",
            f'<p:sldLayout {SPACES} type="obj">{_sheet("")}<p:clrMapOvr><a:masterClrMapping/>'
            "</p:clrMapOvr></p:sldLayout>",
        ),
        "ppt/notesMasters/notesMaster1.xml": (
            f"{KIND}presentationml.notesMaster+xml",
            f"<p:notesMaster {SPACES}>{_sheet('')}{_colour_map()}</p:notesMaster>",
        ),
        "ppt/theme/theme1.xml": (f"{KIND}theme+xml", _theme()),
        "ppt/theme/theme2.xml": (f"{KIND}theme+xml", _theme()),
    }
    links = [
        Link("", "rId1", "officeDocument", "ppt/presentation.xml"),
        Link("ppt/presentation.xml", "rId1", "slideMaster", "slideMasters/slideMaster1.xml"),
        Link("ppt/presentation.xml", "rId2", "notesMaster", "notesMasters/notesMaster1.xml"),
        *(
            Link("ppt/presentation.xml", f"rId{i + 2}", "slide", f"slides/slide{i}.xml")
            for i in names
        ),
    ]
    for owner, rows in {
        "slideMasters/slideMaster1": [
            ("slideLayout", "slideLayouts/slideLayout1"),
            ("theme", "theme/theme1"),
        ],
        "slideLayouts/slideLayout1": [("slideMaster", "slideMasters/slideMaster1")],
        "notesMasters/notesMaster1": [("theme", "theme/theme2")],
    }.items():
        links += _links(owner, rows)
    for i, (title, lines, note) in enumerate(slides, 1):
        parts[f"ppt/slides/slide{i}.xml"] = (
            f"{KIND}presentationml.slide+xml",
            f"<p:sld {SPACES}>"
            f"{_sheet(_shape(2, 'title', [title], 365760) + _shape(3, 'body', lines, 1828800))}"
            "<p:clrMapOvr><a:masterClrMapping/></p:clrMapOvr></p:sld>",
        )
        parts[f"ppt/notesSlides/notesSlide{i}.xml"] = (
            f"{KIND}presentationml.notesSlide+xml",
            f"<p:notes {SPACES}>{_sheet(_shape(2, 'body', [note], 0))}"
            "<p:clrMapOvr><a:masterClrMapping/></p:clrMapOvr></p:notes>",
        )
        layout = ("slideLayout", "slideLayouts/slideLayout1")
        links += _links(f"slides/slide{i}", [layout, ("notesSlide", f"notesSlides/notesSlide{i}")])
        master = ("notesMaster", "notesMasters/notesMaster1")
        links += _links(f"notesSlides/notesSlide{i}", [master, ("slide", f"slides/slide{i}")])
    return office_package(parts, links)


def _links(owner: str, rows: Sequence[tuple[str, str]]) -> list[Link]:
    return [
        Link(f"ppt/{owner}.xml", f"rId{i}", kind, f"../{target}.xml")
        for i, (kind, target) in enumerate(rows, 1)
    ]


def _sheet(shapes: str) -> str:
    return f"<p:cSld><p:spTree>{ROOT}{shapes}</p:spTree></p:cSld>"


def _shape(number: int, kind: str, lines: Sequence[str], top: int) -> str:
    place = 'type="title"' if kind == "title" else 'type="body" idx="1"'
    text = "".join(f"<a:p><a:r><a:t>{escape(line)}</a:t></a:r></a:p>" for line in lines)
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="{number}" name="{kind} {number}"/><p:cNvSpPr/>'
        f"<p:nvPr><p:ph {place}/></p:nvPr></p:nvSpPr><p:spPr><a:xfrm>"
        f'<a:off x="457200" y="{top}"/><a:ext cx="8229600" cy="1371600"/></a:xfrm>'
        '<a:prstGeom prst="rect"><a:avLst/></a:prstGeom></p:spPr>'
        f"<p:txBody><a:bodyPr/><a:lstStyle/>{text}</p:txBody></p:sp>"
    )


def _colour_map() -> str:
    names = MAPPED | {name: name for name in COLOURS if name[:2] not in {"dk", "lt"}}
    return "<p:clrMap " + " ".join(f'{name}="{value}"' for name, value in names.items()) + "/>"


def _theme() -> str:
    colours = "".join(f'<a:{n}><a:srgbClr val="{v}"/></a:{n}>' for n, v in COLOURS.items())
    font = '<a:latin typeface="Calibri"/><a:ea typeface=""/><a:cs typeface=""/>'
    fill = '<a:solidFill><a:schemeClr val="phClr"/></a:solidFill>' * 3
    line = '<a:ln w="9525"><a:solidFill><a:schemeClr val="phClr"/></a:solidFill></a:ln>' * 3
    effect = "<a:effectStyle><a:effectLst/></a:effectStyle>" * 3
    return (
        f'<a:theme xmlns:a="{DRAWING}" name="Plain"><a:themeElements>'
        f'<a:clrScheme name="Plain">{colours}</a:clrScheme><a:fontScheme name="Plain">'
        f"<a:majorFont>{font}</a:majorFont><a:minorFont>{font}</a:minorFont></a:fontScheme>"
        f'<a:fmtScheme name="Plain"><a:fillStyleLst>{fill}</a:fillStyleLst>'
        f"<a:lnStyleLst>{line}</a:lnStyleLst><a:effectStyleLst>{effect}</a:effectStyleLst>"
        f"<a:bgFillStyleLst>{fill}</a:bgFillStyleLst></a:fmtScheme></a:themeElements></a:theme>"
    )
