"""Readers of office documents; libraries are imported at first use.

The XML of Word and OpenDocument becomes HTML by other names for its elements, whose own names are
those of ECMA-376 and OpenDocument 1.3. Each reader takes a file's content, counts what it leaves
unread, and returns blocks and a title.
"""

import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from io import BytesIO
from typing import Any

from lxml import etree

from .blocks import Block, Heading, Page, Paragraph, Table
from .plain import Read, raised, read_page

_XML = etree.XMLParser(resolve_entities=False, no_network=True)
_OFF = ("0", "false", "off", "none")
_ROMAN = ("m", "cm", "d", "cd", "c", "xc", "l", "xl", "x", "ix", "v", "iv", "i")
_VALUES = 1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1
_FORMS = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman"}
# The tags of names; what has none is a span, and what has "" is left out.
_WORD = dict(
    re.findall(
        r"(\S+)=(\S*)",
        "p=p br=br cr=br tbl=table tr=tr tc=td sup=sup sub=sub pic=img hdr=div ftr=div "
        "txbxContent=div footnote=div endnote=div comment=div del= moveFrom= instrText= sdtPr= "
        "rPr= pPr= tblPr=",
    )
)
_OPEN = dict(
    re.findall(
        r"(\S+)=(\S*)",
        "p=p line-break=br list-item=li table=table table-row=tr table-cell=td text-box=div "
        "list=div note-body=div annotation=div list-header=div tracked-changes= creator= date= "
        "covered-table-cell= date-string= note-citation= sequence-decls= forms= scripts= "
        "automatic-styles= font-face-decls=",
    )
)
_BARE_FORMULA = re.compile(rb"<f(?: [^>]*)?(?:/>|>[^<]*</f>)\s*(?:<v\s*/>|<v></v>)?\s*</c>")
_DATES = {"yyyy": "%Y", "yy": "%y", "mmmm": "%B", "mmm": "%b", "dddd": "%A", "ddd": "%a"} | {
    **dict.fromkeys(("d", "dd"), "%d"),
    **dict.fromkeys(("m", "mm"), "%m"),
    **dict.fromkeys(("s", "ss"), "%S"),
    "am/pm": "%p",
}


class _Parts:
    """The parts of an office file."""

    def __init__(self, data: bytes) -> None:
        self._archive = zipfile.ZipFile(BytesIO(data))

    def xml(self, name: str) -> Any:
        """Return the root of a part; an empty element if there is none."""
        try:
            return etree.fromstring(self._archive.read(name), _XML)
        except KeyError:
            return etree.Element("none")

    def named(self, pattern: str) -> list[Any]:
        """Return the roots of the parts whose names match."""
        return [self.xml(n) for n in sorted(self._archive.namelist()) if re.fullmatch(pattern, n)]

    def title(self, name: str) -> str:
        return next((e.text or "" for e in self.xml(name).iter("{*}title")), "")


def _local(node: Any) -> str:
    return str(node.tag).rpartition("}")[2]


def _get(node: Any, name: str, default: str = "") -> str:
    """Return an attribute, whatever its namespace."""
    return next((v for k, v in node.items() if k.rpartition("}")[2] == name), default)


def _value(node: Any, path: str) -> str:
    """Return the `val` of the element at a path of names; empty if there is none."""
    found = None if node is None else node.find("/".join(f"{{*}}{e}" for e in path.split("/")))
    return "" if found is None else _get(found, "val", "on")


def _page(root: Any, tags: Mapping[str, str], *, mixed: bool = False) -> str:
    """Return a tree as HTML; only if it is `mixed`, all text counts, else that of "t"."""
    for node in [*root.iter("{*}*")]:
        name = _local(node)
        tag = node.attrib.pop("as", None) or tags.get(name, "span")
        if not tag:
            node.clear(keep_tail=True)
        if not mixed:
            node.tail, node.text = None, node.text if name == "t" else None
        kept = {key: node.get(key) for key in ("alt", "colspan", "rowspan", "merged", "label")}
        node.attrib.clear()
        node.attrib.update({key: value for key, value in kept.items() if value is not None})
        node.tag = tag or "span"
    return str(etree.tostring(root, method="html", encoding="unicode"))


def _behind(node: Any, note: Any) -> None:
    """Move a note behind the paragraph that it is in."""
    paragraph = next(node.iterancestors("{*}p", "{*}h"), None)
    if paragraph is None:
        return
    if (parent := note.getparent()) is not None:
        parent.replace(note, hole := etree.Element("hole"))
        hole.tail, note.tail = note.tail, None
    note.tail, paragraph.tail = paragraph.tail, None
    paragraph.addnext(note)


def _marked(node: Any, mark: str) -> None:
    """Make an element the raised mark of a note."""
    node.set("as", "sup")
    etree.SubElement(node, "t", {"as": "a"}).text = mark


def _begin(paragraph: Any, text: str) -> None:
    """Put a text at the beginning of a paragraph."""
    first = etree.Element("t")
    first.text, first.tail, paragraph.text = text, paragraph.text, None
    paragraph.insert(0, first)


def read_docx(data: bytes, unread: Counter[str]) -> Read:
    """Read a Word document as it prints with all changes accepted, and its comments."""
    parts = _Parts(data)
    (root,) = parts.named(r"word/document\d*\.xml")[:1] or [etree.Element("none")]
    for header in reversed(parts.named(r"word/header\d*\.xml")):
        root.insert(0, header)
    root.extend(parts.named(r"word/footer\d*\.xml"))
    _number(root, parts.xml("word/numbering.xml"), parts.xml("word/styles.xml"))
    for kind in ("footnote", "endnote", "comment"):
        notes = {_get(e, "id"): e for e in parts.xml(f"word/{kind}s.xml")}
        for number, place in enumerate([*root.iter(f"{{*}}{kind}Reference")], start=1):
            if (note := notes.pop(_get(place, "id"), None)) is not None:
                mark = f"{'comment ' if kind == 'comment' else ''}{number}"
                _marked(place, mark)
                _begin(next(note.iter("{*}p"), note), f"[{mark}] ")
                _behind(place, note)
    for older in [*root.iter("{*}Fallback")]:
        older.clear(keep_tail=True)
    for box in [*root.iter("{*}txbxContent")]:
        _behind(box, box)
    for run in root.iter("{*}r"):
        style = {_local(e): _get(e, "val", "on") for e in run.iterfind("{*}rPr/*")}
        if any(style.get(e, "off") not in _OFF for e in ("vanish", "strike", "dstrike")):
            run.clear(keep_tail=True)
        elif style.get("vertAlign", "") in ("superscript", "subscript"):
            run.set("as", style["vertAlign"][:3])
    for cell in root.iter("{*}tc"):
        cell.set("colspan", _value(cell, "tcPr/gridSpan") or "1")
        if _value(cell, "tcPr/vMerge") in ("on", "continue"):
            cell.set("merged", "")
    for picture in root.iter("{*}pic"):
        frames = [picture, *picture.iterancestors("{*}inline", "{*}anchor")]
        about = (e.get("descr") for frame in frames for e in frame.iter("{*}cNvPr", "{*}docPr"))
        picture.set("alt", next(filter(None, about), ""))
    for each in [*root.iter("{*}tab", "{*}noBreakHyphen")]:
        etree.SubElement(each, "t").text = " " if _local(each) == "tab" else "-"
    unread["chart"] += sum(1 for _ in root.iter("{*}chart"))
    return read_page(_page(root, _WORD), unread)[0], parts.title("docProps/core.xml")


def _number(root: Any, numbering: Any, styles: Any) -> None:
    """Give paragraphs the levels of headings, and the numbers that Word computes for lists."""
    named = {_get(style, "styleId"): style for style in styles.iter("{*}style")}
    used = {_get(each, "numId"): each for each in numbering.iterfind("{*}num")}
    lists = {_get(each, "abstractNumId"): each for each in numbering.iterfind("{*}abstractNum")}
    counts = defaultdict[str, dict[int, int]](dict)
    for paragraph in [*root.iter("{*}p")]:
        chain, place, number, depth = [paragraph], _value(paragraph, "pPr/pStyle"), "", ""
        while place in named and named[place] not in chain:
            chain.append(named[place])
            place = _value(named[place], "basedOn")
        names = (re.fullmatch("(?i)title|heading ([1-6])", _value(e, "name")) for e in chain)
        if found := next(filter(None, names), None):
            paragraph.set("as", f"h{found[1] or 1}")
        for each in chain:
            number = number or _value(each, "pPr/numPr/numId")
            depth = depth or _value(each, "pPr/numPr/ilvl")
        if number not in used:
            continue
        above = _value(used[number], "abstractNumId")
        levels = {int(_get(e, "ilvl")): e for e in lists.get(above, ()) if _local(e) == "lvl"}
        starts = {level: int(_value(e, "start") or 1) for level, e in levels.items()}
        own = {int(_get(e, "ilvl")): _value(e, "startOverride") for e in used[number][1:]}
        now, at = counts[number if own else f"all {above}"], int(depth or 0)
        now[at] = now.get(at, int(own.get(at) or starts.get(at, 1)) - 1) + 1
        for deeper in [level for level in now if level > at]:
            del now[deeper]
        label, kind = _value(levels.get(at), "lvlText"), _value(levels.get(at), "numFmt")
        for level, start in starts.items():
            form = _value(levels[level], "numFmt")
            label = label.replace(f"%{level + 1}", _counted(now.get(level, start), form))
        if not found:
            paragraph.set("as", "li")
        if kind not in ("bullet", "none"):
            _begin(paragraph, f"{label} ")


def _counted(number: int, form: str) -> str:
    """Return a number of a list in one of Word's forms."""
    text = str(number)
    if form.endswith("Letter"):
        text = chr(97 + (number - 1) % 26) * (1 + (number - 1) // 26)
    elif form.endswith("Roman"):
        text = ""
        for sign, value in zip(_ROMAN, _VALUES, strict=True):
            text, number = text + sign * (number // value), number % value
    return text.upper() if form.startswith("upper") else text


def read_odt(data: bytes, unread: Counter[str]) -> Read:
    """Read an OpenDocument text with all changes accepted."""
    parts = _Parts(data)
    root, around = parts.xml("content.xml"), parts.xml("styles.xml")
    styles = {
        _get(e, "name"): e for top in (around, root) for e in top.iter("{*}style", "{*}list-style")
    }
    for kind, place in (("header", 0), ("footer", 1)):
        for each in [*around.iterfind(f".//{{*}}master-page/{{*}}{kind}")]:
            root.insert(place * len(root), each)
    for each in [*root.iter("{*}note", "{*}annotation", "{*}text-box")]:
        note = next(each.iterchildren("{*}note-body"), each)
        if note is not each:
            mark = next((e.text or "" for e in each.iter("{*}note-citation")), "")
            _marked(each, mark)
            _begin(next(note.iter("{*}p"), note), f"[{mark}] ")
        _behind(each, note)
    for node in root.iter("{*}*"):
        name = _local(node)
        if name == "h":
            node.set("as", f"h{min(int(_get(node, 'outline-level', '1')), 6)}")
        elif name == "span":
            own = styles.get(_get(node, "style-name"), node)
            style = next(own.iterchildren("{*}text-properties"), own)
            hidden = _get(style, "display") == "none"
            if hidden or _get(style, "text-line-through-style", "none") != "none":
                node.clear(keep_tail=True)
            elif (raising := _get(style, "text-position")).startswith(("super", "sub")):
                node.set("as", raising[:3])
        elif name in ("s", "tab"):
            node.text = " "
        elif name == "image" and not any(node.getparent().iterchildren("{*}title", "{*}desc")):
            node.set("as", "img")
        elif name == "table-cell":
            node.set("colspan", _get(node, "number-columns-spanned", "1"))
            node.set("rowspan", _get(node, "number-rows-spanned", "1"))
        elif name == "list":
            _label(node, styles)
    return read_page(_page(root, _OPEN, mixed=True), unread)[0], parts.title("meta.xml")


def _label(node: Any, styles: Mapping[str, Any]) -> None:
    """Give the items of a list their numbers."""
    above = [node, *node.iterancestors("{*}list")]
    style = styles.get(next(filter(None, (_get(e, "style-name") for e in above)), ""), ())
    level = next((e for e in style if _get(e, "level") == str(len(above))), None)
    if level is None or not (form := _get(level, "num-format")):
        return
    number = int(_get(level, "start-value", "1"))
    for item in node:
        number = int(_get(item, "start-value", str(number)))
        mark = _counted(number, _FORMS.get(form, "upperRoman"))
        item.set("label", f"{_get(level, 'num-prefix')}{mark}{_get(level, 'num-suffix')} ")
        number += 1


def read_pptx(data: bytes, unread: Counter[str]) -> Read:
    """Read a presentation: a page for each slide, from top to bottom, with its notes."""
    import pptx

    presentation, blocks = pptx.Presentation(BytesIO(data)), list[Block]()
    for slide in presentation.slides:
        if slide.element.get("show") in _OFF:
            unread["hidden slide"] += 1
            continue
        title = slide.shapes.title
        blocks.append(Page())
        if title is not None and title.has_text_frame:
            blocks.append(Heading(title.text_frame.text))
        blocks += _shapes((each for each in slide.shapes if each != title), unread)
        if slide.has_notes_slide:
            notes = slide.notes_slide
            said = (e for e in notes.shapes if not e.is_placeholder or e == notes.notes_placeholder)
            blocks += _shapes(said, unread)
    return blocks, presentation.core_properties.title or ""


def _shapes(shapes: Iterable[Any], unread: Counter[str]) -> Iterator[Block]:
    for shape in sorted(shapes, key=lambda shape: (shape.top or 0, shape.left or 0)):
        if shape.is_placeholder and shape.placeholder_format.type in (13, 16):  # number and date
            continue
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes, unread)
        elif shape.has_text_frame:
            yield Paragraph(_text(shape.text_frame))
        elif shape.has_table:
            rows = ([_text(cell.text_frame) for cell in row.cells] for row in shape.table.rows)
            yield Table(tuple(map(tuple, rows)))
        elif shape.has_chart:
            has_title, plots = shape.chart.has_title, list[Any]()
            with suppress(ValueError):  # of a kind that the library does not know
                plots = [*shape.chart.plots]
            yield Paragraph(shape.chart.chart_title.text_frame.text if has_title else "")
            for plot in plots:
                values = [["" if v is None else f"{v:.15g}" for v in s.values] for s in plot.series]
                points = zip(map(str, plot.categories), *values, strict=False)
                yield Table((("", *(series.name for series in plot.series)), *points))
            unread["chart"] += not any(len(plot.categories) for plot in plots)
        elif text := next((e.get("descr") for e in shape.element.iter("{*}cNvPr")), None):
            yield Paragraph(text)
        else:
            unread["picture" if hasattr(shape, "image") else "drawing"] += 1


def _text(frame: Any) -> str:
    """Return the text of a shape, raised characters as such."""
    lines = list[str]()
    for paragraph in frame.paragraphs:
        line = "" if paragraph.runs else paragraph.text
        for run in paragraph.runs:
            up = int(run.font._element.get("baseline", "0"))
            line += raised(line[-1:], run.text, "sup" if up > 0 else "sub") if up else run.text
        lines.append(line)
    return "\n".join(lines)


def read_xlsx(data: bytes, unread: Counter[str]) -> Read:
    """Read a table for each sheet that is not hidden, under its name."""
    import openpyxl

    with zipfile.ZipFile(BytesIO(data)) as archive:
        for name in archive.namelist():
            if name.startswith("xl/worksheets/") and name.endswith(".xml"):
                found = _BARE_FORMULA.findall(archive.read(name))
                unread["formula without a value"] += len(found)
    book, blocks = (
        openpyxl.load_workbook(BytesIO(data), read_only=True, data_only=True),
        list[Block](),
    )
    for sheet in book.worksheets:
        if sheet.sheet_state != "visible":
            unread["hidden sheet"] += 1
            continue
        sheet.reset_dimensions()  # many programs write wrong ones
        rows = (
            tuple(shown(cell.value, cell.number_format or "") for cell in row) for row in sheet.rows
        )
        blocks += [Heading(sheet.title), Table(tuple(row for row in rows if any(row)))]
    unread["chart sheet"] += len(book.chartsheets)
    return blocks, book.properties.title or ""


def shown(value: Any, form: str) -> str:
    """Return a value as a cell of that format shows it."""
    if isinstance(value, timedelta):
        minutes, seconds = divmod(round(value.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02}" + (f":{seconds:02}" if "s" in form else "")
    if isinstance(value, date | time):
        return _date(value, form)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return (
            "" if value is None else str(value).upper() if isinstance(value, bool) else str(value)
        )
    forms = form.split(";")
    sign, form = ("", forms[1]) if value < 0 and forms[1:] else ("-" * (value < 0), forms[0])
    form = re.sub(r"\[\$([^-\]]*)[^\]]*\]|\[[^\]]*\]|[_*].|[\\\"]", r"\1", form)
    digits = re.search("[#0?][#0?,.]*", form)
    if digits is None or re.search("/|General|@", form):
        return f"{value:.15g}".replace("e", "E")
    whole, _, places = digits[0].partition(".")
    before, after = form[: digits.start()], form[digits.end() :].strip()
    if re.match("E[+-]", after):
        return f"{value:.{len(places)}E}"
    text = f"{abs(value) * 100 ** ('%' in form):{',' * (',' in whole)}.{len(places)}f}"
    text = "0" * (whole.count("0") - len(text.partition(".")[0])) + text
    return f"{before}{sign}{text}{after.replace('%', ' %')}"


def _date(value: Any, form: str) -> str:
    """Return a date or time; that of the machine's own format as ISO 8601 has it."""
    form = re.sub(r"\[[^\]]*\]|[_*].|[\\\"]|;.*", "", form.lower())
    if not re.search("[ymdh]", form) or form == "mm-dd-yy":
        return str(value.date() if isinstance(value, datetime) and not value.time() else value)
    hour = "%I" if "am/pm" in form else "%H"

    def part(sign: re.Match[str]) -> str:
        text = value.strftime(_DATES.get(sign[0], hour))
        return text.lstrip("0") or "0" if len(sign[0]) == 1 else text

    form = re.sub("(?<=h:)mm?|mm?(?=:s)", value.strftime("%M"), form)
    return re.sub("y+|m+|d+|h+|s+|am/pm", part, form)
