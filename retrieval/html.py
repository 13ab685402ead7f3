"""The readable text of a web page."""

import re

from selectolax.lexbor import LexborHTMLParser

_DROPPED = ["script", "style", "noscript", "template", "svg", "nav"]
_PARAGRAPHS = (
    "address, article, aside, blockquote, body, div, dl, figure, footer, form, h1, h2, h3, h4, h5, "
    "h6, header, hr, main, ol, p, pre, section, table, ul"
)
_HEADINGS = "h2, h3, h4, h5, h6"
_LINES = "br, dd, dt, li, option, tr"
_CELLS = "td, th"

# Unicode's own separators mark the breaks, and a space of its own those of code, until all other
# white space has been folded.
_LINE, _PARAGRAPH, _SPACE = "\u2028", "\u2029", "\u2007"


def html_text(page: str) -> tuple[str, str]:
    """The text of a page and its title (its element, else the first heading, else "").

    Scripts, styles and navigation are left out; blocks become paragraphs, table cells are
    separated by a space. A broken page gives what a browser would show.
    """
    tree = LexborHTMLParser(page)
    tree.strip_tags(_DROPPED)
    body = tree.body
    if body is None:
        return "", ""
    named = tree.css_first("title") or tree.css_first("h1") or tree.css_first(_HEADINGS)
    title = " ".join(named.text().split()) if named else ""
    for selector, before, after in (
        (_PARAGRAPHS, _PARAGRAPH, _PARAGRAPH),
        (_LINES, _LINE, ""),
        (_CELLS, " ", " "),
    ):
        for node in tree.css(selector):
            node.insert_before(before)
            node.insert_after(after)
    for code in tree.css("pre"):
        code.replace_with(code.text().replace("\n", _LINE).replace(" ", _SPACE))
    return _laid_out(body.text()), title


def _laid_out(text: str) -> str:
    text = re.sub(rf"[^\S{_LINE}{_PARAGRAPH}{_SPACE}]+", " ", text)
    text = re.sub(rf" ?{_LINE} ?", "\n", text).replace(_SPACE, " ")
    text = re.sub(rf"[\n {_PARAGRAPH}]*({_PARAGRAPH}|\n\n)\n*[ {_PARAGRAPH}]*", "\n\n", text)
    return text.strip()
