"""The readable text of a web page."""

import re

from selectolax.lexbor import LexborHTMLParser

from .layout import HEADING, TABLE, TABLE_END, one_line

_DROPPED = ["script", "style", "noscript", "template", "svg", "nav"]
_PARAGRAPHS = (
    "address, article, aside, blockquote, body, div, dl, figure, footer, form, header, hr, main, "
    "ol, p, pre, section, ul"
)
_LINES = "br, dd, dt, li, option, tr"
_CELLS = "td, th"

# Unicode's own separators mark the breaks, and a space of its own those of code, until all other
# white space has been folded.
_LINE, _PARAGRAPH, _SPACE = "\u2028", "\u2029", "\u2007"
_BREAKS = [
    (_PARAGRAPHS, _PARAGRAPH, _PARAGRAPH),
    *((f"h{level}", f"{_PARAGRAPH}{HEADING}{level}", _PARAGRAPH) for level in range(1, 7)),
    ("table", f"{_PARAGRAPH}{TABLE}", f"{TABLE_END}{_PARAGRAPH}"),
    (_LINES, _LINE, ""),
    (_CELLS, " ", " "),
]


def marked_text(page: str) -> tuple[str, str]:
    """The text of a page with the marks of `layout`, and its title element's text.

    Scripts, styles and navigation are left out; blocks become paragraphs, table cells are
    separated by a space. A broken page gives what a browser would show.
    """
    tree = LexborHTMLParser(page)
    tree.strip_tags(_DROPPED)
    if tree.body is None:
        return "", ""
    title = tree.css_first("title")
    for selector, before, after in _BREAKS:
        for node in tree.css(selector):
            node.insert_before(before)
            node.insert_after(after)
    for code in tree.css("pre"):
        code.replace_with(code.text().replace("\n", _LINE).replace(" ", _SPACE))
    return _folded(tree.body.text()), one_line(title.text()) if title else ""


def _folded(text: str) -> str:
    text = re.sub(rf"[^\S{_LINE}{_PARAGRAPH}{_SPACE}]+", " ", text)
    text = re.sub(rf" ?{_LINE} ?", "\n", text).replace(_SPACE, " ")
    text = re.sub(rf"[\n {_PARAGRAPH}]*({_PARAGRAPH}|\n\n)\n*[ {_PARAGRAPH}]*", "\n\n", text)
    return re.sub(rf"(?<={TABLE})\s+|\s+(?={TABLE_END})", "", text).strip()
