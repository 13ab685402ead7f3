"""Readers of plain text, Markdown, org, HTML, EPUB, CSV and JSON: they take bytes, yield blocks.

Most other formats are translated to HTML and read by `read_page`. What nobody sees on a page is
left out: scripts, navigation, deleted and hidden text.
"""

import csv
import json
import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO, StringIO
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from charset_normalizer import from_bytes
from markdown_it import MarkdownIt
from markdown_it.common.html_blocks import block_names
from selectolax.lexbor import LexborHTMLParser, LexborNode

from . import DocumentError
from .blocks import Block, Heading, Paragraph, Table, Title, Unread, clean, one_line

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
_AT_RULE = re.compile(r"/\*.*?\*/|@[^{};]*(?:;|\{(?:[^{}]*\{[^{}]*\})*[^{}]*\})", re.DOTALL)
_HIDES = re.compile(
    r"(?:^|[},])\s*([.#][a-zA-Z][\w-]*)(?=\s*(?:,[^{}]*)?\{[^{}]*\bdisplay\s*:\s*none)"
)
_SHOWS = re.compile(r"([.#][a-zA-Z][\w-]*)(?=[^{}]*\{[^{}]*\bdisplay\s*:\s*(?!none)\w)")
_BLOCKS = {*block_names, "pre", "textarea"} - {"col", "colgroup", "table"}
_INLINE = (
    "a|abbr|b|br|cite|code|col|colgroup|del|em|font|i|img|input|ins|kbd|mark|q|s|samp|script|"
    "small|span|strike|strong|style|su[bp]|svg|table|template|u|var|wbr"
)
# A "<" of Markdown that begins no tag, and neither <https://...> nor <a@b.example>.
_BRACKET = re.compile(
    rf"<(?=/?[a-z])(?!/?(?:{'|'.join(_BLOCKS)}|{_INLINE})[\s/>])(?![^<>\s]*[:@])", re.I
)
_MOST_SPAN = 100


def decoded(data: bytes, declared: str | None = None) -> str:
    """Decode text: UTF-8, UTF-16, the encoding `declared`, or a guess. Raises DocumentError."""
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


def read_text(data: bytes) -> Iterator[Block]:
    """Yield the whole text of a file, unchanged, as one paragraph."""
    yield Paragraph(decoded(data))


def read_markdown_file(data: bytes) -> Iterator[Block]:
    """Yield the blocks of a Markdown file; its front matter is a Title and a paragraph."""
    source = clean(decoded(data))
    if front := _FRONT_MATTER.match(source):
        source = source[front.end() :]
        yield from (Title(name.strip("\"'")) for name in _FRONT_TITLE.findall(front[1])[:1])
        yield Paragraph(_FRONT_TITLE.sub("", front[1]), front=True)
    yield from read_markdown(_COMMENT.sub("", source))


def read_org(data: bytes) -> Iterator[Block]:
    """Yield the blocks of an Emacs org file; its headings and tables are read as Markdown's."""
    source = clean(decoded(data))
    yield from map(Title, re.findall(r"(?im)^#\+title:[^\S\n]*(.+)$", source)[:1])
    source = re.sub(r"(?m)^\*{1,6}(?= )", lambda stars: "#" * len(stars[0]), source)
    source = re.sub(r"(?m)^\s*#\+.*$", "\n", source)
    source = re.sub(r"(?m)^\s*\|-[-+|]*$", lambda rule: rule[0].replace("+", "|"), source)
    yield from read_markdown(source)


def read_html(data: bytes, charset: str | None = None) -> Iterator[Block]:
    """Yield the blocks of an HTML file, in the encoding `charset` or the one the page declares."""
    declared = re.search(rb"<meta[^>]+charset=[\"']?([\w-]+)", data[: 2**16], re.IGNORECASE)
    return read_page(decoded(data, charset or (declared and declared[1].decode("ascii"))))


def read_csv(data: bytes) -> Iterator[Block]:
    """Yield a Table split at comma, semicolon, tab or bar, whichever makes rows equally long."""
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
    yield Table(tuple(map(tuple, csv.reader(lines, delimiter=separator))))


def read_json(data: bytes) -> Iterator[Block]:
    """Yield a paragraph, with a line "path.to.name: value" per value; invalid JSON is unchanged."""
    text = decoded(data)
    with suppress(ValueError, RecursionError):
        text = "\n".join(_leaves(json.loads(text)))
    yield Paragraph(text)


def _leaves(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        for key, each in value.items() if isinstance(value, dict) else enumerate(value, start=1):
            yield from _leaves(each, f"{name}.{key}" if name else str(key))
    else:
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield f"{name}: {shown}" if name else shown


def read_epub(data: bytes) -> Iterator[Block]:
    """Yield the blocks of a book, in the reading order of its spine (EPUB 3.3, 4.2 and 5)."""
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
    above = package.findtext(".//{*}title") or ""
    yield Title(above)
    for page in pages:
        title, *found = read_page(page)
        assert isinstance(title, Title)
        if title.text not in ("", above) and not any(isinstance(each, Heading) for each in found):
            yield Heading(title.text)
        yield from found
        above = title.text


def read_page(page: str) -> Iterator[Block]:
    """Yield the Title and blocks of an HTML page; embedded pictures without "alt" are Unread."""
    tree = LexborHTMLParser(page)
    title = tree.css_first("title")
    yield Title(one_line(title.text()) if title else "")
    styles = _AT_RULE.sub("", "".join(style.text() for style in tree.css("style"))[: 2**16])
    hidden = {*_HIDES.findall(styles)} - {*_SHOWS.findall(styles)}
    for node in reversed(tree.css(", ".join([_UNSEEN, *hidden]))):  # the inner ones first
        node.decompose()
    if tree.body is None:
        return
    for node in tree.css("img"):
        alt, source = node.attributes.get("alt"), node.attributes.get("src") or "data:"
        if not alt and source.startswith("data:"):
            yield Unread("picture")
        node.replace_with(f" {alt} " if alt else "")
    for node in tree.css("input[value]:not([type=hidden]):not([type=submit]):not([type=button])"):
        node.replace_with(f" {node.attributes['value'] or ''} ")
    yield from _Walk(tree.body).ended()


def read_markdown(source: str) -> Iterator[Block]:
    """Yield the blocks of CommonMark with tables; a "<" that begins no HTML tag stays text."""
    return read_page(_MARKDOWN.render(_BRACKET.sub(r"\\<", source)))


class _Walk:
    """The blocks of a node, and the text of the next block."""

    def __init__(self, node: LexborNode) -> None:
        self._blocks, self._text, self._label = list[Block](), "", ""
        self._open = Counter[str]()  # elements
        self.into(node)

    def into(self, node: LexborNode) -> None:
        count = _number(node, "start", 1)
        for child in node.iter(include_text=True):
            tag = child.tag or ""
            if tag == "-text":
                text = child.text_content or ""
                self._text += text if self._open["pre"] else re.sub(r"\s+", " ", text)
            elif tag == "br":
                self._text += "\n"
            elif tag in ("sup", "sub"):
                begin, is_note = len(self._text), child.css_first("a") is not None
                self.into(child)
                before, mark = self._text[:begin], self._text[begin:].strip()
                self._text = before + script_text(before[-1:], mark, tag, is_note=is_note)
            elif tag == "table":
                self.ended()
                self._blocks += _table(child)
            elif tag in _BLOCKS:
                self.ended()
                label = child.attributes.get("mark") or ""  # of other formats
                if tag == "li" and node.tag == "ol":
                    count = _number(child, "value", count) + 1
                    label = f"{count - 1}. "
                self._label = label or self._label
                self._open[tag] += 1
                self.into(child)
                self.ended(int(tag[1]) if tag[1:].isdigit() else 0)
                self._label = "" if label else self._label
                self._open[tag] -= 1
            else:
                self.into(child)

    def ended(self, level: int = 0) -> list[Block]:
        """Make a block of the text, a heading if it has a `level`; return all blocks."""
        text = self._text if self._open["pre"] else re.sub(r" *\n *", "\n", self._text).strip()
        if text.strip():
            text, self._label = self._label + text, ""
            block = Paragraph(text, item=self._open["li"] > 0, code=self._open["pre"] > 0)
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
            found = _Walk(cell).ended()
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


def script_text(before: str, mark: str, tag: str, *, is_note: bool = False) -> str:
    """Return an HTML element of `tag` sup or sub as plain text, such as "^2", "_2" or " [2]".

    `mark` is the element's text, `before` the character before it. If they are no power or index,
    as in "3rd", `mark` is returned unchanged. A link to a footnote (`is_note`) gets brackets.
    """
    if is_note:
        return f" [{mark.strip('[]')}]"
    if tag == "sub":
        return f"_{mark}" if before.isdigit() else mark
    is_ordinal = before.isdigit() and mark.isalpha()  # 3rd
    return mark if is_ordinal or not before.isalnum() else f"^{mark}"


def _number(node: LexborNode, name: str, default: int) -> int:
    text = node.attributes.get(name) or ""
    return int(text) if re.fullmatch(r"-?\d{1,9}", text) else default
