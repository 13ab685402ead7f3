"""Cutting a text into chunks of a few words each: by sections, paragraphs and sentences."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from .failures import RetrievalError

# Scripts without spaces count one word per character; a run of 40 characters is a word of any.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_CJK}]|[^\s{_CJK}]{{1,40}}")
_LETTER = re.compile(f"[{_CJK}]")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*$|[。！？]$")
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n")


def chunk(
    text: str,
    words: int = 64,
    starts: Sequence[int] = (),
    tables: Sequence[tuple[int, int]] = (),
) -> list[tuple[int, int]]:
    """Spans of at most `words` words, as characters `start:end`, with all words of `text` in order.

    A chunk ends where a section starts, else at the last paragraph's or else the last sentence's
    end of its second half, so within a section it is between half full and full; a section of up
    to `words` words is one chunk. A table of up to 4 `words` words is in one chunk, even if that is
    then emptier or fuller; a larger one is cut between its lines.

    Args:
        starts: the characters at which sections start.
        tables: first character and end of every table.

    Raises:
        RetrievalError: `words` is not positive.
    """
    if words < 1:
        raise RetrievalError(f"a chunk needs at least one word, not {words}")
    found = list(_WORD.finditer(text))
    begins = [word.start() for word in found]
    sections = sorted({0, *(bisect_left(begins, start) for start in starts), len(found)})
    rows = [(bisect_left(begins, a), bisect_left(begins, b)) for a, b in tables]
    spans: list[tuple[int, int]] = []
    for first, end in pairwise(sections):
        while first < end:
            last = _end_of_chunk(text, found, first, end, words)
            table = next(((a, b) for a, b in rows if a < last <= b and b > first), None)
            if table is not None and last < table[1] <= end:
                last = _beside_table(text, found, first, last, table, 4 * words)
            spans.append((found[first].start(), found[last - 1].end()))
            first = last
    return spans


def spaced(text: str) -> str:
    """A text whose every word stands by itself, also in scripts without spaces."""
    return _LETTER.sub(r" \g<0> ", text)


def _beside_table(
    text: str, found: list[re.Match[str]], first: int, last: int, table: tuple[int, int], most: int
) -> int:
    """Where to end a chunk that would end at `last`, within `table`."""
    begin, end = table
    if begin > first:
        return begin
    if end - begin <= most:
        return end
    for row in range(last, first, -1):
        if "\n" in text[found[row - 1].end() : found[row].start()]:
            return row
    return last


def _end_of_chunk(text: str, found: list[re.Match[str]], first: int, last: int, words: int) -> int:
    """Where to end a chunk that begins at `first`, in a section that ends at `last`."""
    limit = first + words
    if limit >= last:
        return last
    sentence = None
    for end in range(limit, first + (words + 1) // 2 - 1, -1):
        if _PARAGRAPH.search(text, found[end - 1].end(), found[end].start()):
            return end
        if sentence is None and _SENTENCE_END.search(found[end - 1][0]):
            sentence = end
    return sentence or limit
