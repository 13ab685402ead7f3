"""Cut a text into chunks of a few words, at sections, paragraphs and sentences."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import add, itemgetter

from . import RetrievalError

# Scripts without spaces count one word per character; a run of 40 characters is a word of any.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_CJK}]|[^\s{_CJK}]{{1,40}}")
_LETTER = re.compile(f"[{_CJK}]")
_SPACE = re.compile(r"\s+")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*$|[。！？]$")
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n")
_LETTERS = re.compile(r"[a-z]+")
_LONGEST = 15  # letters of most words
_TABLE = 4
"""A table of up to this many times a chunk's words is one chunk."""
_TOKENS = 3
"""Tokens of a chunk for each of its words; English prose has 1.3."""
_SPARSE = 4  # most characters of an estimated token, with spaces


def chunk(
    text: str,
    words: int = 64,
    starts: Sequence[int] = (),
    tables: Sequence[tuple[int, int]] = (),
) -> list[tuple[int, int]]:
    """Return spans of at most `words` words, as characters `start:end`, that cover all words.

    A chunk ends at the next section (`starts`), else at a paragraph's or sentence's end in its
    second half. A table (first character, end) of up to 4 `words` words is one chunk; a larger one
    is cut between lines, with room for its `header`. A chunk of several words has at most 3 `words`
    tokens (`tokens_of`). White space, except single blanks, counts a token per byte.
    """
    if words < 1:
        raise RetrievalError(f"a chunk needs at least one word, not {words}")
    found = list(_WORD.finditer(text))
    begins = [word.start() for word in found]
    gaps = [_gap(text[a.end() : b.start()]) for a, b in pairwise([*found[:1], *found])] + [0]
    costs = [0, *accumulate(map(add, gaps, (tokens_of(word[0]) for word in found)))]
    sections = sorted({0, *(bisect_left(begins, start) for start in starts), len(found)})
    rows = [(bisect_left(begins, a), bisect_left(begins, b)) for a, b in tables]
    ends = [end for _, end in rows]

    def full(first: int, most: int, above: str = "") -> int:
        """Return the last end of a chunk from `first` of `most` words, some of `above`."""
        before = costs[first] + gaps[first]
        last = bisect_right(costs, before + _TOKENS * words - _cost(above)) - 1
        return max(first + 1, min(first + most - len(_WORD.findall(above)), last))

    spans: list[tuple[int, int]] = []
    for first, end in pairwise(sections):
        while first < end:
            limit = full(first, words, header(text, begins[first], tables, words))
            last = _end_of_chunk(text, found, first, end, limit)
            table = (*rows, (len(found), 0))[bisect_left(ends, last)]
            if table[0] < last < table[1] <= end:
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
    """Return the header line to repeat in a chunk that starts inside a table.

    It is empty outside of tables, and if that line would take more than half of a chunk.
    """
    for begin, end in tables[max(0, bisect_right(tables, start, key=itemgetter(0)) - 1) :][:1]:
        line = text[begin : text.find("\n", begin, end)] if begin < start < end else ""
        if not line or begin + len(line) >= start or len(line) > _SPARSE * _TOKENS * words:
            continue
        if 2 * len(_WORD.findall(line)) <= words and 2 * _cost(line) <= _TOKENS * words:
            return line
    return ""


def _cost(text: str) -> int:
    """Return the estimated tokens of a line with its end."""
    return sum(map(tokens_of, _WORD.findall(text))) + sum(map(_gap, _SPACE.findall(text))) + 1


def _gap(space: str) -> int:
    """Return the estimated tokens of the white space between two words."""
    return 0 if space in ("", " ") else len(space.encode("utf-8", "surrogatepass"))


def tokens_of(word: str) -> int:
    """Estimate the most tokens that a tokenizer makes of a word.

    One per three small Latin letters, two in runs of over 15, one per other byte.
    """
    runs = list(map(len, _LETTERS.findall(word)))
    letters = sum(-(-run // 3) if run <= _LONGEST else -(-2 * run // 3) for run in runs)
    return len(word.encode("utf-8", "surrogatepass")) - sum(runs) + letters


def spaced(text: str) -> str:
    """Return a text with spaces between its words, also in scripts without spaces."""
    return _LETTER.sub(r" \g<0> ", text)


def _end_of_row(text: str, found: list[re.Match[str]], first: int, last: int) -> int:
    """Return the end of the last line between `first` and `last`, else `last`."""
    for row in range(last, first, -1):
        if "\n" in text[found[row - 1].end() : found[row].start()]:
            return row
    return last


def _end_of_chunk(text: str, found: list[re.Match[str]], first: int, last: int, limit: int) -> int:
    """Return the end of a chunk from `first` that is full at `limit`, in a section up to `last`."""
    if limit >= last:
        return last
    sentence = None
    for end in range(limit, first + (limit - first + 1) // 2 - 1, -1):
        if _PARAGRAPH.search(text, found[end - 1].end(), found[end].start()):
            return end
        if sentence is None and _SENTENCE_END.search(found[end - 1][0]):
            sentence = end
    return sentence or limit
