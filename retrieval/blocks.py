"""A document as a sequence of blocks: headings, paragraphs, tables, page breaks.

A block's class is its structure, so text is never parsed for headings or tables. A table's row
becomes a line that repeats the header: the bundled model answers best from lines of this form.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_LONGEST = 80
_ROW = 160  # most characters of a row's line, if it has several cells
_NUMBER = re.compile(r"\d[\d.,]*")
# Escapes of terminals, control characters, what has no width, and noncharacters of Unicode.
_UNSEEN = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]|[\0-\x08\x0e-\x1f\x7f\xad\u200b\u2060\ufeff\ufdd0-\ufdef\ufffe\uffff]"
)


class Heading(NamedTuple):
    """The text of a heading, and its `level`: 1 for the highest, as of HTML's h1."""

    text: str
    level: int = 1


class Paragraph(NamedTuple):
    """A paragraph's text; flags tell a list's `item`, `code`, and a file's `front` matter."""

    text: str
    item: bool = False
    code: bool = False
    front: bool = False


class Table(NamedTuple):
    """A table: its `rows` from top to bottom, each the texts of its cells; the header is first."""

    rows: tuple[tuple[str, ...], ...]


class Page(NamedTuple):
    """A page break, which has no text; the blocks up to the next Page are on the page it begins."""


class Title(NamedTuple):
    """The document's title in its metadata, such as an e-mail's subject; not part of its text."""

    text: str


class Unread(NamedTuple):
    """A mark where content was not read as text; `what` is its kind, such as "picture"."""

    what: str


Block = Heading | Paragraph | Table | Page | Title | Unread


class Document(NamedTuple):
    """A file's `blocks` and `title`; `unread` counts content that is not text: "2 pictures"."""

    blocks: Sequence[Block]
    title: str = ""
    unread: str = ""

    @property
    def text(self) -> str:
        """Return the text of all blocks, as `laid_out` makes it; chunks are spans of this text."""
        return laid_out(self.blocks)[0]

    @property
    def front(self) -> str:
        """Return the metadata that a Markdown file begins with, without its title; "" if none."""
        return "".join(
            each.text for each in self.blocks if isinstance(each, Paragraph) and each.front
        )


def laid_out(blocks: Iterable[Block]) -> tuple[str, list[int], list[int]]:
    """Return (text, rows, pages): the blocks as one text, and where in it rows and pages begin.

    A table's lines are rows, as is the text after it; `chunking.chunk` prefers to cut before one.
    """
    text, rows, pages, before = "", list[int](), list[int](), False
    for block in blocks:
        is_item = isinstance(block, Paragraph) and block.item
        gap = "\n\n" if text else ""
        if isinstance(block, Page):
            pages.append(len(text) + len(gap))
        for line in _lines(block):
            text += "\n" if is_item and before else gap
            if isinstance(block, Table):
                rows.append(len(text))
                gap = "\n"
            text += line
            before = is_item
        if isinstance(block, Table):
            rows.append(len(text) + 2)
    return text, rows, pages


def clean(text: str) -> str:
    r"""Return a text without control and zero-width characters, with "\n" between lines."""
    return _UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str) -> str:
    """Return a text as one line for a title: over 80 characters it is cut at a word, with "…"."""
    line = " ".join(clean(text).split())
    return line if len(line) <= _LONGEST else line[:_LONGEST].rsplit(" ", 1)[0] + "…"


def _lines(block: Block) -> Iterator[str]:
    """Yield the lines of a block."""
    if isinstance(block, Heading):
        yield one_line(block.text)
    elif isinstance(block, Table):
        yield from _rows([[" ".join(clean(cell).split()) for cell in row] for row in block.rows])
    elif isinstance(block, Paragraph):
        text = clean(block.text)
        text = text.strip("\n") if block.code else re.sub(r"\n{3,}", "\n\n", text).strip()
        yield from filter(None, [text])


def _rows(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows of cells as lines, "Boat: Canoe; Hour: 12 EUR"; long rows as several.

    Two columns are names and values. A header begins with no number. Empty cells stay visible.
    """
    width = max((n + 1 for row in rows for n, cell in enumerate(row) if cell), default=0)
    full = [[*row, *[""] * width][:width] for row in rows if any(row)]
    heads: Sequence[str] | None = None
    last = max((n for n, row in enumerate(full) if sum(map(bool, row)) > 1), default=0)
    for number, row in enumerate(full):
        if width != 2 and sum(map(bool, row)) == 1:
            yield "".join(row)  # a title within the table
        elif width == 2:
            yield f"{row[0].rstrip(':')}: {row[1] or '-'}" if row[0] else row[1]
        elif heads is None and number < last and not _NUMBER.fullmatch(row[0]):
            heads = row
        else:
            heads = heads or [""] * width
            named = zip(heads, row, strict=True)
            cells = [f"{head}: {cell or '-'}" if head else cell or "-" for head, cell in named]
            line = cells[0]
            for cell in cells[1:]:
                if len(line) + len(cell) > _ROW and line != cells[0]:
                    yield line
                    line = cells[0]
                line += f"; {cell}"
            yield line
