"""Cutting a text into chunks of a few words each: by sections, paragraphs and sentences."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import add

from .failures import RetrievalError

# Scripts without spaces count one word per character; a run of 40 characters is a word of any.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_CJK}]|[^\s{_CJK}]{{1,40}}")
_LETTER = re.compile(f"[{_CJK}]")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*$|[。！？]$")
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n")
_LETTERS = re.compile(r"[a-z]{1,3}")
_TABLE = 4
"""A table of so many times a chunk's words is still one chunk."""
_TOKENS = 6
"""Tokens for each word that a chunk may have: English prose takes 1.3, and ends by its words."""


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
    then emptier or fuller; a larger one is cut between its lines, with room for its `header`. No
    chunk has more than 6 `words` tokens, as `tokens_of` estimates them, unless it is one word.

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
    gaps = (text[a.end() : b.start()] not in ("", " ") for a, b in pairwise([*found[:1], *found]))
    costs = [0, *accumulate(map(add, gaps, (tokens_of(word[0]) for word in found)))]
    sections = sorted({0, *(bisect_left(begins, start) for start in starts), len(found)})
    rows = [(bisect_left(begins, a), bisect_left(begins, b)) for a, b in tables]

    def full(first: int, most: int, beside: Sequence[str] = ()) -> int:
        """Where a chunk from `first` on ends at the latest, with `most` words, some `beside`."""
        tokens = _TOKENS * words - sum(map(tokens_of, beside))
        last = bisect_right(costs, costs[first] + tokens) - 1
        return max(first + 1, min(first + most - len(beside), last))

    spans: list[tuple[int, int]] = []
    for first, end in pairwise(sections):
        while first < end:
            above = _WORD.findall(header(text, begins[first], tables, words))
            limit = full(first, words, above)
            last = _end_of_chunk(text, found, first, end, limit)
            table = next(((a, b) for a, b in rows if a < last <= b and b > first), None)
            if table is not None and last < table[1] <= end:
                if table[0] > first:
                    last = table[0]
                elif table[0] == first and full(first, _TABLE * words) >= table[1]:
                    last = table[1]
                else:
                    last = _end_of_row(text, found, first, limit)
            spans.append((found[first].start(), found[last - 1].end()))
            first = last
    return spans


def header(text: str, start: int, tables: Sequence[tuple[int, int]], words: int) -> str:
    """The first line of the table in which a chunk starts below it, as that is to repeat it.

    Empty elsewhere, and where that line would take more than half of a chunk.
    """
    for begin, end in tables:
        line = text[begin : text.find("\n", begin, end)] if begin < start < end else ""
        if line and begin + len(line) < start and 2 * len(_WORD.findall(line)) <= words:
            return line
    return ""


def tokens_of(word: str) -> int:
    """At most about so many tokens does a model's tokenizer make of a word.

    That is one for three small Latin letters, and for every other byte.
    """
    letters = _LETTERS.findall(word)
    return len(word.encode("utf-8", "surrogatepass")) - sum(map(len, letters)) + len(letters)


def spaced(text: str) -> str:
    """A text whose every word stands by itself, also in scripts without spaces."""
    return _LETTER.sub(r" \g<0> ", text)


def _end_of_row(text: str, found: list[re.Match[str]], first: int, last: int) -> int:
    """The end of the last line, if there is one between `first` and `last`; else that."""
    for row in range(last, first, -1):
        if "\n" in text[found[row - 1].end() : found[row].start()]:
            return row
    return last


def _end_of_chunk(text: str, found: list[re.Match[str]], first: int, last: int, limit: int) -> int:
    """Where to end a chunk from `first` on that is full at `limit`, in a section up to `last`."""
    if limit >= last:
        return last
    sentence = None
    for end in range(limit, first + (limit - first + 1) // 2 - 1, -1):
        if _PARAGRAPH.search(text, found[end - 1].end(), found[end].start()):
            return end
        if sentence is None and _SENTENCE_END.search(found[end - 1][0]):
            sentence = end
    return sentence or limit
