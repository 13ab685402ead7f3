"""Readers of office documents: each takes a file's bytes and yields its blocks.

Word and OpenDocument files are read as HTML after their XML elements, named in ECMA-376 and
OpenDocument 1.3, are renamed to those of HTML. Libraries are imported at first use.
"""

import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from io import BytesIO
from math import isfinite
from posixpath import join, normpath
from typing import Any

from lxml import etree

from .blocks import Block, Heading, Page, Paragraph, Table, Title, Unread
from .plain import read_page

_XML = etree.XMLParser(resolve_entities=False, no_network=True)
_OFF = ("0", "false", "off", "none")
_ROMAN = ("m", "cm", "d", "cd", "c", "xc", "l", "xl", "x", "ix", "v", "iv", "i")
_VALUES = 1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1
_FORMS = {"lowerLetter": "a", "upperLetter": "A", "lowerRoman": "i", "upperRoman": "I"}
_FORMS |= {"bullet": "", "none": ""}
# The tags of names; what has none is a span, and what has "" is left out.
_WORD = (
    "p=p br=br cr=br tbl=table caption=caption tr=tr tc=td sup=sup sub=sub pic=img hdr=div ftr=div "
    "txbxContent=div footnote=div endnote=div comment=div del= moveFrom= instrText= sdtPr= "
    "rPr= pPr= tblPr="
)
_OPEN = (
    "p=p line-break=br list-item=li table=table table-row=tr table-cell=td text-box=div "
    "list=div note-body=div annotation=div list-header=div tracked-changes= creator= date= "
    "covered-table-cell= date-string= note-citation= sequence-decls= forms= scripts= "
    "automatic-styles= font-face-decls="
)
_SLIDE = "br=br tbl=table tr=tr tc=td sp=div"
_BARE_FORMULA = re.compile(rb"<f(?: [^>]*)?(?:/>|>[^<]*</f>)\s*(?:<v\s*/>|<v></v>)?\s*</c>")
_THREAD = "\nComment:\n"  # before the text of a comment that others answer
_DATES = {"y": "yyYY", "m": "mmbB", "d": "ddaA", "s": "SSSS", "a": "pppp"}  # by their lengths


class _Parts(zipfile.ZipFile):
    """The parts of an office file."""

    def xml(self, name: str) -> Any:
        """Return the root of a part; an empty element if there is none."""
        return _parsed(self.read(name)) if name in self.NameToInfo else etree.Element("none")

    def named(self, pattern: str) -> list[Any]:
        """Return the roots of the parts whose names match."""
        return [self.xml(name) for name in sorted(self.namelist()) if re.fullmatch(pattern, name)]

    def title(self, name: str) -> Title:
        return Title(self.xml(name).findtext(".//title") or "")

    def related(self, name: str) -> dict[str, str]:
        """Return the names of the parts that a part refers to, by their identifiers."""
        folder, _, file = name.rpartition("/")
        relations = self.xml(f"{folder}/_rels/{file}.rels")
        return {e.get("Id"): normpath(join(f"/{folder}", e.get("Target")))[1:] for e in relations}


def _parsed(data: bytes) -> Any:
    """Return the root of XML without comments, its names without namespaces."""
    root = etree.fromstring(data, _XML)
    for node in root.iter("{*}*"):
        node.tag = node.tag.rpartition("}")[2]
        for key, value in node.items():
            if key.startswith("{"):
                del node.attrib[key]
                node.set(key.rpartition("}")[2], value)
    return root


def _value(node: Any, path: str) -> str:
    """Return the `val` of the element at a path; empty if there is none."""
    found = node.find(path)
    return "" if found is None else str(found.get("val", "on"))


def _read(root: Any, names: str, *, mixed: bool = False) -> Iterator[Block]:
    """Yield a tree's blocks; only if it is `mixed`, all text counts, else that of "t"."""
    tags = dict(each.split("=") for each in names.split())
    for node in [*root.iter("*")]:
        tag = node.attrib.pop("as", None) or tags.get(node.tag, "span")
        if not tag:
            node.clear(keep_tail=True)
        if not mixed:
            node.tail, node.text = None, node.text if node.tag == "t" else None
        node.tag = tag or "span"
    return read_page(str(etree.tostring(root, method="html", encoding="unicode")))


def _behind(node: Any, note: Any, mark: str = "") -> None:
    """Move a note behind the paragraph that it is in; mark both."""
    if mark:
        node.set("as", "sup")
        etree.SubElement(node, "t", {"as": "a"}).text = mark
        next(note.iter("p"), note).set("mark", f"[{mark}] ")
    paragraph = next(node.iterancestors("p", "h"), None)
    if paragraph is None:
        return
    if (parent := note.getparent()) is not None:
        parent.replace(note, hole := etree.Element("hole"))
        hole.tail, note.tail = note.tail, None
    note.tail, paragraph.tail = paragraph.tail, None
    paragraph.addnext(note)


def _chart(root: Any) -> Any:
    """Return a chart as a table of Word, of its points as they are shown."""
    table = etree.Element("tbl")
    caption = etree.SubElement(etree.SubElement(table, "caption"), "t")
    caption.text = "".join(root.xpath("chart/title//t/text()"))
    rows, width = defaultdict[tuple[str, str], dict[int, str]](dict), 1
    for width, series in enumerate(root.iter("ser"), start=1):
        rows["", ""][width] = "".join(series.xpath("tx//v/text()"))
        names = {e.get("idx"): _point(e) for e in reversed(series.xpath("(cat|xVal)//pt"))}
        for e in series.xpath("(val|yVal)//pt"):
            rows[e.get("idx"), names.get(e.get("idx"), "")][width] = _point(e)
    for (_, name), values in rows.items():
        row = etree.SubElement(table, "tr")
        for text in (name, *(values.get(n, "") for n in range(1, width + 1))):
            etree.SubElement(etree.SubElement(row, "tc"), "t").text = text
    return table


def _point(point: Any) -> str:
    """Return a point of a chart as its format shows it."""
    text, form = point.findtext("v") or "", point.getparent().findtext("formatCode")
    with suppress(ValueError):
        return cell_text(float(text), form) if form else text
    return text


def read_docx(data: bytes) -> Iterator[Block]:
    """Yield the blocks of a Word document, all its changes accepted, with notes and comments."""
    parts = _Parts(BytesIO(data))
    yield parts.title("docProps/core.xml")
    (root,) = parts.named(r"word/document\d*\.xml")[:1] or [etree.Element("none")]
    root[:0] = parts.named(r"word/header\d*\.xml")
    root.extend(parts.named(r"word/footer\d*\.xml"))
    _number(root, parts.xml("word/numbering.xml"), parts.xml("word/styles.xml"))
    for kind in ("footnote", "endnote", "comment"):
        notes = {e.get("id"): e for e in parts.xml(f"word/{kind}s.xml")}
        for number, place in enumerate([*root.iter(f"{kind}Reference")], start=1):
            if (note := notes.pop(place.get("id"), None)) is not None:
                _behind(place, note, f"{'comment ' if kind == 'comment' else ''}{number}")
    charts = parts.related("word/document.xml")
    for place in [*root.iter("chart")]:
        _behind(place, _chart(parts.xml(charts.get(place.get("id"), ""))))
    for older in [*root.iter("Fallback")]:
        older.clear(keep_tail=True)
    for box in [*root.iter("txbxContent")]:
        _behind(box, box)
    for run in root.iter("r"):
        style = {e.tag: e.get("val", "on") for e in run.iterfind("rPr/*")}
        if any(style.get(e, "off") not in _OFF for e in ("vanish", "strike", "dstrike")):
            run.clear(keep_tail=True)
        elif style.get("vertAlign", "") in ("superscript", "subscript"):
            run.set("as", style["vertAlign"][:3])
    for cell in root.iter("tc"):
        cell.set("colspan", _value(cell, "tcPr/gridSpan") or "1")
        if _value(cell, "tcPr/vMerge") in ("on", "continue"):
            cell.set("merged", "")
    for picture in root.iter("pic"):
        frames = [picture, *picture.iterancestors("inline", "anchor")]
        about = (e.get("descr") for frame in frames for e in frame.iter("cNvPr", "docPr"))
        picture.set("alt", next(filter(None, about), ""))
    for each in [*root.iter("tab", "noBreakHyphen")]:
        etree.SubElement(each, "t").text = " " if each.tag == "tab" else "-"
    yield from _read(root, _WORD)


def _number(root: Any, numbering: Any, styles: Any) -> None:
    """Give paragraphs the levels of headings, and the numbers that Word computes for lists."""
    named = {style.get("styleId"): style for style in styles.iter("style")}
    used = {each.get("numId"): each for each in numbering.iterfind("num")}
    lists = {each.get("abstractNumId"): each for each in numbering.iterfind("abstractNum")}
    counts = defaultdict[str, dict[int, int]](dict)
    for paragraph in [*root.iter("p")]:
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
        own = {each.get("ilvl"): _value(each, "startOverride") for each in used[number][1:]}
        levels = {
            int(e.get("ilvl")): (
                int(own.get(e.get("ilvl")) or _value(e, "start") or 1),
                _FORMS.get(_value(e, "numFmt"), "1"),
                _value(e, "lvlText"),
            )
            for e in (lists[above].iterfind("lvl") if above in lists else ())
        }
        if not found:
            paragraph.set("as", "li")
        key = number if own else f"all {above}"
        paragraph.set("mark", _label(counts[key], int(depth or 0), levels))


def _label(counts: dict[int, int], at: int, levels: Mapping[int, tuple[int, str, str]]) -> str:
    """Count an item of a list; return its number, by the start, form and pattern of each level."""
    start, kind, label = levels.get(at, (1, "", ""))
    counts[at] = counts.get(at, start - 1) + 1
    for deeper in [level for level in counts if level > at]:
        del counts[deeper]
    for level, (start, form, _) in levels.items():
        label = label.replace(f"%{level + 1}", _counted(counts.get(level, start), form))
    return f"{label} " if kind else ""


def _counted(number: int, form: str) -> str:
    text = str(number)
    if form in ("a", "A"):
        text = chr(97 + (number - 1) % 26) * (1 + (number - 1) // 26)
    elif form in ("i", "I"):
        text = ""
        for sign, value in zip(_ROMAN, _VALUES, strict=True):
            text, number = text + sign * (number // value), number % value
    return text.upper() if form.isupper() else text


def read_odt(data: bytes) -> Iterator[Block]:
    """Yield the blocks of an OpenDocument text (.odt) with all changes accepted, and its notes."""
    parts = _Parts(BytesIO(data))
    yield parts.title("meta.xml")
    root, around = parts.xml("content.xml"), parts.xml("styles.xml")
    styles = {e.get("name"): e for top in (around, root) for e in top.iter("style", "list-style")}
    styles["outline"] = next(around.iter("outline-style"), ())
    root[:0] = around.findall(".//master-page/header")
    root.extend(around.findall(".//master-page/footer"))
    for each in [*root.iter("note", "annotation", "text-box")]:
        note = next(each.iterchildren("note-body"), each)
        _behind(each, note, each.findtext("note-citation") or "")
    counts = defaultdict[str, dict[int, int]](dict)
    for node in [*root.iter("*")]:
        if node.tag == "h":
            node.set("as", f"h{min(int(node.get('outline-level', '1')), 6)}")
        elif node.tag == "span":
            own = styles.get(node.get("style-name"), node)
            style = next(own.iterchildren("text-properties"), own)
            hidden = style.get("display") == "none"
            if hidden or style.get("text-line-through-style", "none") != "none":
                node.clear(keep_tail=True)
            elif (raising := style.get("text-position", "")).startswith(("super", "sub")):
                node.set("as", raising[:3])
        elif node.tag in ("s", "tab"):
            node.text = " "
        elif node.tag == "image" and not any(node.getparent().iterchildren("title", "desc")):
            node.set("as", "img")
        elif node.tag == "table-cell":
            node.set("colspan", node.get("number-columns-spanned", "1"))
            node.set("rowspan", node.get("number-rows-spanned", "1"))
        if node.tag in ("list-item", "h"):
            _count(node, styles, counts)
    yield from _read(root, _OPEN, mixed=True)


def _count(item: Any, styles: Mapping[str, Any], counts: dict[str, dict[int, int]]) -> None:
    """Give an item of a list, or a heading outside of lists, its number."""
    above = [*item.iterancestors("list")]
    name, at = next(filter(None, (e.get("style-name") for e in above)), ""), len(above) - 1
    if at == 0 and item.getprevious() is None and above[0].get("continue-numbering") != "true":
        counts[name].clear()
    if item.tag == "h":
        if above or item.get("is-list-header"):
            return
        name, at = "outline", int(item.get("outline-level", "1")) - 1
    elif next(item.iterchildren("p", "h"), None) is None:
        return
    levels = dict[int, tuple[int, str, str]]()
    for each in styles.get(name, ()):
        if each.get("level"):
            level, depth = int(each.get("level")), int(each.get("display-levels", "1"))
            numbers = ".".join(f"%{n}" for n in range(level - depth + 1, level + 1))
            pattern = each.get("num-prefix", "") + numbers + each.get("num-suffix", "")
            form, start = each.get("num-format", ""), int(each.get("start-value", "1"))
            levels[level - 1] = start, form, pattern
    if first := item.get("start-value"):
        counts[name][at] = int(first) - 1
    item.set("mark", _label(counts[name], at, levels))


def read_pptx(data: bytes) -> Iterator[Block]:
    """Yield a presentation's blocks: per slide a page, its shapes from top to bottom, its notes."""
    import pptx

    presentation = pptx.Presentation(BytesIO(data))
    title = presentation.core_properties.title or ""
    yield Title(title.removeprefix("PowerPoint Presentation"))  # nobody gave it
    for slide in presentation.slides:
        if slide.element.get("show") in _OFF:
            yield Unread("hidden slide")
            continue
        yield Page()
        title = slide.shapes.title
        if title is not None and title.has_text_frame:
            yield Heading(title.text_frame.text)
        yield from _shapes(each for each in slide.shapes if each != title)
        if slide.has_notes_slide:
            notes = slide.notes_slide
            said = (e for e in notes.shapes if not e.is_placeholder or e == notes.notes_placeholder)
            yield from _shapes(said)


def _shapes(shapes: Iterable[Any]) -> Iterator[Block]:
    for shape in sorted(shapes, key=lambda shape: (shape.top or 0, shape.left or 0)):
        if shape.is_placeholder and shape.placeholder_format.type in (13, 16):  # number and date
            continue
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        elif shape.has_chart:
            yield from _read(_chart(_parsed(shape.chart.part.blob)), _WORD)
        elif shape.has_text_frame or shape.has_table:
            tree = _parsed(etree.tostring(shape.element))
            for style in tree.xpath("//r/rPr[@baseline and @baseline != 0]"):
                style.getparent().set("as", "sub" if style.get("baseline") < "0" else "sup")
            for paragraph in tree.iter("p"):
                etree.SubElement(paragraph, "br")
            yield from _read(tree, _SLIDE)
        elif text := next((e.get("descr") for e in shape.element.iter("{*}cNvPr")), None):
            yield Paragraph(text)
        else:
            yield Unread("picture" if hasattr(shape, "image") else "drawing")


def read_xlsx(data: bytes) -> Iterator[Block]:
    """Yield each visible sheet of a workbook: its name as a Heading, a Table, and its comments."""
    import openpyxl

    parts = _Parts(BytesIO(data))
    book = openpyxl.load_workbook(BytesIO(data), read_only=True, data_only=True)
    yield Title(book.properties.title or "")
    places = parts.related("xl/workbook.xml")
    for entry in parts.xml("xl/workbook.xml").iter("sheet"):
        sheet, place = book[entry.get("name")], places[entry.get("id")]
        if sheet.sheet_state != "visible" or sheet in book.chartsheets:
            yield Unread("hidden sheet" if sheet.sheet_state != "visible" else "chart sheet")
            continue
        bare = _BARE_FORMULA.findall(parts.read(place))
        yield from [Unread("formula without a value")] * len(bare)
        comments = {
            note.get("ref"): f" [comment: {text.rpartition(_THREAD)[2].strip()}]"
            for name in parts.related(place).values()
            if "/comments" in name
            for note in parts.xml(name).iter("comment")
            if (text := "".join(note.xpath(".//t/text()")))
        }
        sheet.reset_dimensions()  # many programs write wrong ones
        rows = [
            tuple(
                cell_text(cell.value, cell.number_format or "")
                + comments.pop(getattr(cell, "coordinate", ""), "")
                for cell in row
            )
            for row in sheet.rows
        ]
        yield from (Heading(sheet.title), Table(tuple(filter(any, rows))))
        yield Paragraph("\n".join(comments.values()))


def cell_text(value: Any, form: str) -> str:
    """Return a spreadsheet cell's `value` as text, in the number format `form` of its cell."""
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
    if digits is None and re.search("(?i)[ymdh]", form):
        return _date(datetime(1899, 12, 30) + timedelta(value), form)
    if digits is None or not isfinite(value) or re.search("/|General|@", form):
        return f"{value:.15g}".replace("e", "E")
    whole, _, places = digits[0].partition(".")
    before, after = form[: digits.start()], form[digits.end() :].strip()
    if re.match("E[+-]", after):
        return f"{value:.{len(places)}E}"
    exact = Decimal(f"{abs(value):.15g}") * 100 ** ("%" in form)
    exact = exact.quantize(Decimal(1).scaleb(-len(places)), ROUND_HALF_UP, Context(prec=1000))
    text = f"{exact:{',' * (',' in whole)}f}"
    text = "0" * (whole.count("0") - len(text.partition(".")[0])) + text
    return f"{before}{sign}{text}{after.replace('%', ' %')}"


def _date(value: Any, form: str) -> str:
    """Return a date or time; that of the machine's own format as ISO 8601 has it."""
    form = re.sub(r"\[[^\]]*\]|[_*].|[\\\"]|;.*", "", form.lower())
    if not re.search("[ymdh]", form) or form == "mm-dd-yy":
        return str(value.date() if isinstance(value, datetime) and not value.time() else value)
    hour = "IIII" if "am/pm" in form else "HHHH"

    def part(sign: re.Match[str]) -> str:
        text = value.strftime("%" + _DATES.get(sign[0][0], hour)[min(len(sign[0]), 4) - 1])
        return text.lstrip("0") or "0" if len(sign[0]) == 1 else text

    form = re.sub("(?<=h:)mm?|mm?(?=:s)", value.strftime("%M"), form)
    return re.sub("y+|m+|d+|h+|s+|am/pm", part, form)
