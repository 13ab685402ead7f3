"""Cutting a text into chunks of a few words each, at sentence ends where possible."""

import re
from dataclasses import dataclass

from .errors import RetrievalError

# Scripts without spaces count one word per character; a run of 40 characters is a word of any.
CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{CJK}]|[^\s{CJK}]{{1,40}}")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*$|[。！？]$")
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True, slots=True)
class Span:
    """A chunk's place in its text, in characters: `text[start:end]`."""

    start: int
    end: int


def chunk(text: str, words: int = 64, overlap: int = 0) -> list[Span]:
    """Spans of at most `words` words that cover all words of `text` in order.

    A chunk ends at the last paragraph's or else the last sentence's end of its second half, so it
    is between half full and full; a text of up to `words` words is one chunk. Every chunk repeats
    the last `overlap` words of the one before.

    Raises:
        RetrievalError: `words` is not positive, or `overlap` is half of it or more.
    """
    if words < 1:
        raise RetrievalError(f"a chunk needs at least one word, not {words}")
    if overlap < 0 or (overlap and 2 * overlap >= words):
        raise RetrievalError(f"an overlap of {overlap} words does not fit chunks of {words}")
    found = [Span(*match.span()) for match in _WORD.finditer(text)]
    spans: list[Span] = []
    first = 0
    while first < len(found):
        last = _end_of_chunk(text, found, first, words)
        spans.append(Span(found[first].start, found[last - 1].end))
        if last == len(found):
            break
        first = last - overlap
    return spans


def _end_of_chunk(text: str, found: list[Span], first: int, words: int) -> int:
    limit = first + words
    if limit >= len(found):
        return len(found)
    sentence = None
    for end in range(limit, first + (words + 1) // 2 - 1, -1):
        if _PARAGRAPH.search(text, found[end - 1].end, found[end].start):
            return end
        word = text[found[end - 1].start : found[end - 1].end]
        if sentence is None and _SENTENCE_END.search(word):
            sentence = end
    return sentence or limit
