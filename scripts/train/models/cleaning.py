"""From markup to plain paragraphs of prose, with one spelling for quotes, dashes and spaces."""

import html
import re
import unicodedata

_CHARACTERS = str.maketrans(
    {
        "“": '"', "”": '"', "„": '"', "″": '"', "‘": "'", "’": "'", "ʼ": "'", "′": "'",
        "–": "-", "‑": "-", "−": "-", "⸺": "—", "⸻": "—", "…": "...", "æ": "ae", "œ": "oe",
        "ﬁ": "fi", "ﬂ": "fl", "\u00a0": " ", "\u2009": " ", "\u200a": " ", "\u202f": " ",
        "\u2060": "", "\ufeff": "", "\u200b": "", "\u00ad": "",
    }
)  # fmt: skip
_NO_PROSE = " ~NOPROSE~ "
_NO_PROSE_ELEMENTS = re.compile(
    r"<(m:math|math|table|figure|exercise|footnote|note [^>]*class=\"[^\"]*media)[\s>].*?"
    r"</(m:math|math|table|figure|exercise|footnote|note)>",
    re.DOTALL,
)
_NOTE_REFERENCE = re.compile(r"<a [^>]*noteref[^>]*>.*?</a>", re.DOTALL)


def clean(text: str) -> str:
    """One line of text without entities, in plain characters."""
    text = unicodedata.normalize("NFC", html.unescape(text)).translate(_CHARACTERS)
    return re.sub(r"\s+", " ", text).strip()


def without_tags(markup: str) -> str:
    """The text of an element; what is no prose leaves a mark that `is_prose` refuses."""
    markup = _NO_PROSE_ELEMENTS.sub(_NO_PROSE, markup)
    markup = _NOTE_REFERENCE.sub("", markup)
    return clean(re.sub(r"<[^>]+>", "", re.sub(r"<br ?/?>", " ", markup)))


def is_prose(paragraph: str, least: int = 40) -> bool:
    """Whether a paragraph is `least` characters long and almost all letters."""
    if len(paragraph) < least or _NO_PROSE.strip() in paragraph or "http" in paragraph:
        return False
    letters = sum(c.isalpha() or c in " ,.'" for c in paragraph)
    latin = all(ord(c) < 0x250 or c == "—" for c in paragraph)
    return latin and letters > 0.85 * len(paragraph)


def is_article(paragraphs: list[str]) -> bool:
    """Whether there is enough text for an article."""
    return sum(map(len, paragraphs)) > 400
