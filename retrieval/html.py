"""The readable text of a web page."""

import re
from html.parser import HTMLParser

_DROPPED = frozenset({"script", "style", "noscript", "template", "svg", "nav"})
# fmt: off
_PARAGRAPHS = frozenset({
    "address", "article", "aside", "blockquote", "body", "div", "dl", "figure", "footer", "form",
    "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "ol", "p", "pre", "section",
    "table", "ul",
})
# fmt: on
_LINES = frozenset({"br", "dd", "dt", "li", "option", "tr"})


def html_text(page: str) -> tuple[str, str]:
    """The text of a page and its title (the title element, else the first h1, else empty).

    Scripts, styles and navigation are left out; blocks become paragraphs, table cells are
    separated by a space. A broken page gives what a browser would roughly show.
    """
    parser = _TextParser()
    parser.feed(page)
    parser.close()
    text = "".join(parser.parts)
    text = re.sub(r"[^\S\n]+", " ", text)
    text = re.sub(r" ?\n ?", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip(), (parser.title or parser.heading).strip()


class _TextParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title = ""
        self.heading = ""
        self._dropped: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _DROPPED:
            self._dropped.append(tag)
        elif tag == "title" or (tag == "h1" and not self.heading):
            self._inside = tag
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._dropped:
            # An element that was never closed ends with the one around it.
            del self._dropped[self._dropped.index(tag) :]
        elif tag in ("body", "main", "html"):
            self._dropped.clear()
        if tag == self._inside:
            self._inside = ""
        self._break(tag)

    def handle_data(self, data: str) -> None:
        if self._dropped:
            return
        if self._inside == "title":
            self.title += data
            return
        if self._inside == "h1":
            self.heading += data
        self.parts.append(re.sub(r"\s+", " ", data))

    def _break(self, tag: str) -> None:
        if tag in _PARAGRAPHS:
            self.parts.append("\n\n")
        elif tag in _LINES:
            self.parts.append("\n")
        elif tag in ("td", "th"):
            self.parts.append(" ")
