"""A document's text, and what stands where in it: headings, tables, pages.

A parser writes one string in which noncharacters of Unicode, which no text has, mark the
structure; `laid_out` takes them out again and notes where they stood.
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
    """A file's text, with "\\n" between lines, and its structure.

    Attributes:
        title: empty only if the text is.
        sections: where each begins, and the headings that it stands under, outermost first. What
            comes before the first heading is in none.
        tables: first character and end of each.
        pages: where each begins.
    """

    text: str
    title: str
    sections: tuple[tuple[int, tuple[str, ...]], ...] = ()
    tables: tuple[tuple[int, int], ...] = ()
    pages: tuple[int, ...] = ()

    def name(self, place: int) -> str:
        """The title and the headings over a place in the text: "Museum › Opening hours"."""
        section = bisect_right(self.sections, place, key=lambda section: section[0])
        path = self.sections[section - 1][1] if section else ()
        return " › ".join([self.title, *(path[1:] if path[:1] == (self.title,) else path)])

    def page(self, place: int) -> int:
        """The number of the page that a place in the text is on, from 1; 0 if there are none."""
        return bisect_right(self.pages, place)


def heading(text: str, level: int = 1) -> str:
    """A heading with its mark."""
    return f"\n\n{HEADING}{min(max(level, 1), 6)}{one_line(text)}\n\n"


def table(rows: Iterable[Iterable[object]]) -> str:
    """A table with its marks, a line for each row that is not empty."""
    lines = ("\t".join("" if cell is None else str(cell) for cell in row).rstrip() for row in rows)
    return f"\n\n{TABLE}{chr(10).join(line for line in lines if line)}{TABLE_END}\n\n"


def one_line(text: str) -> str:
    """A text as a title: in one line, and cut at a word if it is long."""
    line = " ".join(_MARK.sub("", text).split())
    return line if len(line) <= _LONGEST else line[:_LONGEST].rsplit(" ", 1)[0] + "…"


def page(text: str) -> str:
    """A page's text with its mark."""
    return f"\n\n{PAGE}{text.strip()}"


def laid_out(marked: str, title: str = "") -> Document:
    """The document in a string with marks. Without a `title` it has its first heading or line."""
    marked = marked.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").strip()
    marked = re.sub(r"\n{3,}", "\n\n", marked)
    text = ""
    headings: list[tuple[int, int]] = []
    tables: list[tuple[int, int]] = []
    inside: list[int] = []
    pages: list[int] = []
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
    """Sections from the places and levels of headings; one without a text joins the next one."""
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
