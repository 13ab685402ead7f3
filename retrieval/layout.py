"""A document's text with the places of its headings, tables and pages.

A reader returns one string in which noncharacters of Unicode, which no text has, mark the
structure; `laid_out` removes them and records their places.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

HEADING, TABLE, TABLE_END, PAGE = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"
_MARK = re.compile(f"{HEADING}[1-6]|{TABLE}|{TABLE_END}|{PAGE}")
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Document:
    r"""A file's text, with "\n" between lines, and its structure.

    `sections` are (first character, headings above, outermost first); text before the first heading
    has none. `tables` are (first character, end), `pages` first characters. `title` is empty only
    if the text is.
    """

    text: str
    title: str
    sections: tuple[tuple[int, tuple[str, ...]], ...] = ()
    tables: tuple[tuple[int, int], ...] = ()
    pages: tuple[int, ...] = ()

    def name(self, place: int) -> str:
        """Return the title and headings of a place in the text: "Museum › Opening hours"."""
        section = bisect_right(self.sections, place, key=lambda section: section[0])
        path = self.sections[section - 1][1] if section else ()
        return " › ".join([self.title, *(path[1:] if path[:1] == (self.title,) else path)])

    def page(self, place: int) -> int:
        """Return the number of a place's page, from 1; 0 if there are no pages."""
        return bisect_right(self.pages, place)


def heading(text: str, level: int = 1) -> str:
    """Mark a text as a heading of that level."""
    return f"\n\n{HEADING}{min(max(level, 1), 6)}{one_line(text)}\n\n"


def table(rows: Iterable[Iterable[object]]) -> str:
    """Mark rows as a table, a line for each row that is not empty."""
    lines = ("\t".join("" if cell is None else str(cell) for cell in row).rstrip() for row in rows)
    return f"\n\n{TABLE}{chr(10).join(line for line in lines if line)}{TABLE_END}\n\n"


def one_line(text: str) -> str:
    """Shorten a text to a title: one line, cut at a word if it is long."""
    line = " ".join(_MARK.sub("", text).split())
    return line if len(line) <= _LONGEST else line[:_LONGEST].rsplit(" ", 1)[0] + "…"


def page(text: str) -> str:
    """Mark a text as a page."""
    return f"\n\n{PAGE}{text.strip()}"


def laid_out(marked: str, title: str = "") -> Document:
    """Return the document in a marked string; its title is `title` or its first heading or line."""
    marked = marked.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").strip()
    marked = re.sub(r"\n{3,}", "\n\n", marked)
    text, inside, pages = "", list[int](), list[int]()
    headings, tables = list[tuple[int, int]](), list[tuple[int, int]]()
    for part in re.split(f"({_MARK.pattern})", marked):
        if part[:1] == HEADING:
            headings.append((len(text), int(part[1])))
        elif part == TABLE:
            inside.append(len(text))
        elif part == PAGE:
            pages.append(len(text))
        elif part != TABLE_END:
            text += part
        elif len(inside) > 1:  # a table in a table belongs to that one
            inside.pop()
        elif inside:
            tables.append((inside.pop(), len(text)))
    sections = tuple(_sections(text, headings))
    first = text[headings[0][0] if headings else 0 :].split("\n", 1)[0]
    return Document(text, one_line(title or first), sections, tuple(tables), tuple(pages))


def _sections(text: str, headings: list[tuple[int, int]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield sections from headings' places and levels; one without text joins the next one."""
    path: dict[int, str] = {}
    begin = None
    for number, (place, level) in enumerate(headings, start=1):
        end = headings[number][0] if number < len(headings) else len(text)
        line, _, body = text[place:end].strip().partition("\n")
        path = {lv: over for lv, over in path.items() if lv < level} | {level: one_line(line)}
        begin = place if begin is None else begin
        if body or number == len(headings):
            yield begin, tuple(path.values())
            begin = None
