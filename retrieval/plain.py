"""Readers of text: plain, Markdown, org, HTML, EPUB, CSV, JSON. Others translate to HTML.

Each takes a file's content, counts what it leaves unread, and returns blocks and a title. What
nobody sees on a page is left out: scripts, navigation, deleted and hidden text.
"""

import csv
import json
import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from io import BytesIO, StringIO
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from charset_normalizer import from_bytes
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser, LexborNode

from . import DocumentError
from .blocks import Block, Heading, Paragraph, Table, clean, one_line

Read = tuple[list[Block], str]

_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"(?m)^title:\s*(.+?)\s*$")
_COMMENT = re.compile(r"^%%$.*?^%%$|%%[^%\n]+%%", re.MULTILINE | re.DOTALL)  # Obsidian's
_CODE_PAGES = [
    *("cp1252", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256", "gb18030"),
    *("big5", "shift_jis", "euc_jp", "euc_kr", "cp850", "mac_roman"),
]
_NOT_LATIN = re.compile("[^\\W\\d_][\x80-\xbf×÷\ufffd]|[a-z][À-ÞŒŠŸŽ]")
csv.field_size_limit(2**31 - 1)  # a long cell is a text like any other
# Line breaks are kept: addresses and times are separate lines.
_MARKDOWN = MarkdownIt("commonmark", {"breaks": True}).enable(["table", "strikethrough"])
_STYLES = "display:none", "display: none", "visibility:hidden", "visibility: hidden", "font-size:0"
_UNSEEN = "script, style, noscript, template, svg, nav, del, s, strike, [hidden], " + ", ".join(
    f"[style*='{style}' i]" for style in _STYLES
)
_BLOCKS = (
    "address|article|aside|blockquote|body|caption|center|d[dlt]|details|div|fieldset|figcaption|"
    "figure|footer|form|h[1-6r]|header|li|main|[ou]l|option|p|pre|section|summary|t[rdh]"
)
_INLINE = (
    "a|abbr|b|br|cite|code|col|colgroup|del|em|font|i|img|input|ins|kbd|mark|nav|q|s|samp|script|"
    "small|span|strike|strong|style|su[bp]|svg|table|tbody|template|tfoot|thead|u|var|wbr"
)
_is_block = re.compile(_BLOCKS).fullmatch
# A "<" of Markdown that begins no tag, and neither <https://...> nor <a@b.example>.
_BRACKET = re.compile(rf"<(?=/?[a-z])(?!/?(?:{_BLOCKS}|{_INLINE})[\s/>])(?![^<>\s]*[:@])", re.I)
_MOST_SPAN = 100


def decoded(data: bytes, declared: str | None = None) -> str:
    """Decode UTF-8, UTF-16, `declared` or a code page that fits; else raise DocumentError."""
    zeros, even = data.count(0), data[::2].count(0)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ["utf-16"]
    elif 4 * zeros > len(data) and 10 * min(even, zeros - even) < zeros:
        encodings = ["utf-16-be" if even > zeros / 2 else "utf-16-le"]
    elif 100 * zeros > len(data):
        raise DocumentError("is not text")
    else:
        # ASCII may be a declared ISO-2022 code.
        given = [declared] if declared else []
        encodings = [*(given if data.isascii() else []), "utf-8-sig", *given, "", "cp1252"]
    for encoding in encodings:
        try:
            return data.decode(encoding or _code_page(data))
        except (ValueError, LookupError):
            continue
    raise DocumentError("is not text in a known encoding")


def _code_page(data: bytes) -> str:
    """Return cp1252 if a text looks right in it, else the code page that fits best."""
    text, high = data.decode("cp1252", "replace"), len(data.translate(None, bytes(range(128))))
    if 3 * high < len(data) and not _NOT_LATIN.search(text):
        return "cp1252"
    best = from_bytes(data[: 2**16], cp_isolation=_CODE_PAGES).best()
    return "cp1252" if best is None else best.encoding


def read_text(data: bytes, unread: Counter[str]) -> Read:
    """Return the text unchanged."""
    return [Paragraph(decoded(data))], ""


def read_markdown_file(data: bytes, unread: Counter[str]) -> Read:
    """Read CommonMark; the keys of its front matter, except the title, are a paragraph."""
    source, title, above = clean(decoded(data)), "", list[Block]()
    if front := _FRONT_MATTER.match(source):
        source = source[front.end() :]
        if named := _FRONT_TITLE.search(front[1]):
            title = named[1].strip("\"'")
        above = [Paragraph(_FRONT_TITLE.sub("", front[1]), front=True)]
    return above + read_markdown(_COMMENT.sub("", source), unread), title


def read_org(data: bytes, unread: Counter[str]) -> Read:
    """Read an org file as the Markdown that its headings and tables are."""
    source = clean(decoded(data))
    title = re.search(r"(?im)^#\+title:[^\S\n]*(.+)$", source)
    source = re.sub(r"(?m)^\*{1,6}(?= )", lambda stars: "#" * len(stars[0]), source)
    source = re.sub(r"(?m)^\s*#\+.*$", "\n", source)
    source = re.sub(r"(?m)^\s*\|-[-+|]*$", lambda rule: rule[0].replace("+", "|"), source)
    return read_markdown(source, unread), title[1] if title else ""


def read_html(data: bytes, unread: Counter[str], charset: str | None = None) -> Read:
    """Read a page in the encoding that is given or that it declares."""
    declared = re.search(rb"<meta[^>]+charset=[\"']?([\w-]+)", data[: 2**16], re.IGNORECASE)
    return read_page(decoded(data, charset or (declared and declared[1].decode("ascii"))), unread)


def read_csv(data: bytes, unread: Counter[str]) -> Read:
    """Read one table, by the separator that gives most rows one width."""
    text = clean(decoded(data))
    named = re.match(r"sep=(.)\n", text, re.IGNORECASE)

    def alike(separator: str) -> tuple[float, int, int]:
        rows = [row for row in csv.reader(StringIO(text[: 2**16]), delimiter=separator) if row]
        widths = Counter(map(len, rows))
        several = ((number / len(rows), width) for width, number in widths.items() if width > 1)
        share, width = max(several, default=(0.0, 0))
        return share, -sum(cell.count('"') for row in rows for cell in row), width

    separator = named[1] if named else max(",;\t|", key=alike)
    lines = StringIO(text[named.end() if named else 0 :])
    return [Table(tuple(map(tuple, csv.reader(lines, delimiter=separator))))], ""


def read_json(data: bytes, unread: Counter[str]) -> Read:
    """Read values by their names, a line each; what is no JSON is text."""
    text = decoded(data)
    try:
        return [Paragraph("\n".join(_leaves(json.loads(text))))], ""
    except (ValueError, RecursionError):
        return [Paragraph(text)], ""


def _leaves(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        for key, each in value.items() if isinstance(value, dict) else enumerate(value, start=1):
            yield from _leaves(each, f"{name}.{key}" if name else str(key))
    else:
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield f"{name}: {shown}" if name else shown


def read_epub(data: bytes, unread: Counter[str]) -> Read:
    """Read a book: the pages of its spine in order (EPUB 3.3, sections 4.2 and 5).

    A page without a heading gets its title as one, unless it continues the page before.
    """
    with zipfile.ZipFile(BytesIO(data)) as book:
        container = ElementTree.fromstring(book.read("META-INF/container.xml"))
        name = container.findall(".//{*}rootfile")[0].attrib["full-path"]
        package = ElementTree.fromstring(book.read(name))
        files = {e.get("id"): unquote(e.get("href", "")) for e in package.findall(".//{*}item")}
        folder = posixpath.dirname(name)
        pages = [
            decoded(book.read(posixpath.join(folder, files[e.get("idref")])))
            for e in package.findall(".//{*}itemref")
        ]
    title = above = package.findtext(".//{*}title") or ""
    blocks = list[Block]()
    for found, name in (read_page(page, unread) for page in pages):
        if name not in ("", above) and not any(isinstance(each, Heading) for each in found):
            blocks.append(Heading(name))
        blocks += found
        above = name
    return blocks, title


def read_page(page: str, unread: Counter[str]) -> tuple[list[Block], str]:
    """Return the blocks of a page, parsed as in a browser, and its title element's text.

    Pictures within the page that have no text are counted as `unread`.
    """
    tree = LexborHTMLParser(page)
    title = tree.css_first("title")
    for node in tree.css(_UNSEEN):
        node.decompose()
    if tree.body is None:
        return [], ""
    for node in tree.css("img"):
        alt, source = node.attributes.get("alt"), node.attributes.get("src") or "data:"
        unread["picture"] += not alt and source.startswith("data:")
        node.replace_with(f" {alt} " if alt else "")
    for node in tree.css("input[value]:not([type=hidden]):not([type=submit]):not([type=button])"):
        node.replace_with(f" {node.attributes['value'] or ''} ")
    walk = _Walk()
    walk.into(tree.body)
    return walk.ended(), one_line(title.text()) if title else ""


def read_markdown(source: str, unread: Counter[str]) -> list[Block]:
    """Return the blocks of CommonMark with tables; angle brackets around no tag are text."""
    return read_page(_MARKDOWN.render(_BRACKET.sub(r"\\<", source)), unread)[0]


class _Walk:
    """The blocks of the nodes walked into so far, and the text of the next block."""

    def __init__(self) -> None:
        self._blocks, self._text, self._label = list[Block](), "", ""
        self._items = self._code = 0  # lists and code that are open

    def into(self, node: LexborNode) -> None:
        count = _number(node, "start", 1)
        for child in node.iter(include_text=True):
            tag = child.tag or ""
            if tag == "-text":
                text = child.text_content or ""
                self._text += text if self._code else re.sub(r"\s+", " ", text)
            elif tag == "br":
                self._text += "\n"
            elif tag in ("sup", "sub"):
                begin, is_note = len(self._text), child.css_first("a") is not None
                self.into(child)
                before, mark = self._text[:begin], self._text[begin:].strip()
                self._text = before + raised(before[-1:], mark, tag, is_note=is_note)
            elif tag == "table":
                self.ended()
                self._blocks += _table(child)
            elif _is_block(tag):
                self.ended()
                if tag == "li":
                    self._label = child.attributes.get("label") or ""
                    if node.tag == "ol":
                        count = _number(child, "value", count) + 1
                        self._label = f"{count - 1}. "
                self._items += tag == "li"
                self._code += tag == "pre"
                self.into(child)
                self.ended(int(tag[1]) if tag[1:].isdigit() else 0)
                self._items -= tag == "li"
                self._code -= tag == "pre"
            else:
                self.into(child)

    def ended(self, level: int = 0) -> list[Block]:
        """Make a block of the text, a heading if it has a `level`; return all blocks."""
        text = self._text if self._code else re.sub(r" *\n *", "\n", self._text).strip()
        if text.strip():
            text, self._label = self._label + text, ""
            block = Paragraph(text, item=self._items > 0, code=self._code > 0)
            self._blocks.append(Heading(text, level) if level else block)
        self._text = ""
        return self._blocks


def _table(node: LexborNode) -> list[Block]:
    """Return a table and those within it, or the cells of one that only lays out a page."""
    cells, blocks, inner = dict[tuple[int, int], str](), list[Block](), list[Table]()
    height = heads = 0
    for y, row in enumerate(_within(node, "tr")):
        own = [*_within(row, "td", "th")]
        is_head = heads == y and all(cell.tag == "th" for cell in own)
        heads, height, x = heads + is_head, y + 1, 0
        for cell in own:
            walk = _Walk()
            walk.into(cell)
            found = walk.ended()
            blocks += found
            inner += [block for block in found if isinstance(block, Table)]
            text = " ".join(b.text for b in found if isinstance(b, Heading | Paragraph))
            while (y, x) in cells:
                x += 1
            if "merged" in cell.attributes:  # of Word: it belongs to the cell above
                text = cells.get((y - 1, x), text)
            for across in range(min(_number(cell, "colspan", 1), _MOST_SPAN)):
                for down in range(min(_number(cell, "rowspan", 1), _MOST_SPAN)):
                    cells[y + down, x + across] = "" if across and not is_head else text
    width = max((x for _, x in cells), default=0) + 1
    nested = sum(len(cell) for table in inner for row in table.rows for cell in row)
    if width < 2 or nested > sum(map(len, cells.values())):
        return blocks
    rows = [tuple(cells.get((y, x), "") for x in range(width)) for y in range(height)]
    if heads > 1:  # a header of several rows: "Fare Adult"
        rows[:heads] = [
            tuple(" ".join(dict.fromkeys(each)) for each in zip(*rows[:heads], strict=True))
        ]
    above = [Paragraph(each.text().strip()) for each in _within(node, "caption")]
    return [*above, Table(tuple(rows)), *inner]


def _within(node: LexborNode, *tags: str) -> Iterator[LexborNode]:
    """Yield the elements of a table that are not of a table within it."""
    for child in node.iter():
        if child.tag in tags:
            yield child
        elif child.tag != "table":
            yield from _within(child, *tags)


def raised(before: str, mark: str, tag: str, *, is_note: bool = False) -> str:
    """Return a raised or lowered text behind a character so that it joins no number."""
    if is_note:
        return f" [{mark.strip('[]')}]"
    if tag == "sub":
        return f"_{mark}" if before.isdigit() else mark
    is_ordinal = before.isdigit() and mark.isalpha()  # 3rd
    return mark if is_ordinal or not before.isalnum() else f"^{mark}"


def _number(node: LexborNode, name: str, default: int) -> int:
    text = node.attributes.get(name) or ""
    return int(text) if re.fullmatch(r"-?\d{1,9}", text) else default
