"""Cut a document's blocks into chunks of a few words, at sections, paragraphs and sentences."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, pairwise
from operator import add

from . import RetrievalError
from .blocks import Block, Document, Heading, Page, laid_out, one_line

Piece = tuple[str, str, int, int, int]
"""A chunk's text and title, its first character and end in the document's text, and its page."""

# Scripts without spaces count one word per character; a run of 40 characters is a word of any.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_CJK}]|[^\s{_CJK}]{{1,40}}")
_LETTER = re.compile(f"[{_CJK}]")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*$|[。！？]$")
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n")
_LETTERS = re.compile(r"[a-z]+")
_LONGEST = 15  # letters of most words
_MANY = 500  # rows, of which each chunk has more, or the index would be large
_TOKENS = 3
"""Tokens of a chunk for each of its words; English prose has 1.3."""


def pieces(document: Document, words: int = 64) -> Iterator[Piece]:
    """Yield a document's chunks of at most `words` words, titled with the headings above: "A › B".

    A Piece is (text, title, start, end, page): `start` and `end` are offsets in `document.text`;
    pages count from 1, and `page` is 0 in a document without pages.
    """
    begin = before = 0
    for path, blocks in _sections(document.blocks):
        text, rows, pages = laid_out(blocks)
        title = " › ".join([document.title, *path[path[:1] == [document.title] :]])
        for start, end in chunk(text, words, frozenset(rows)):
            page = before + bisect_right(pages, start)
            yield text[start:end], title, begin + start, begin + end, page
        begin, before = begin + len(text) + 2 * bool(text), before + len(pages)


def _sections(blocks: Sequence[Block]) -> Iterator[tuple[list[str], list[Block]]]:
    """Yield the headings above each section and its blocks; a bare heading joins the next one."""
    path, section, has_text = dict[int, str](), list[Block](), False
    for block in blocks:
        if isinstance(block, Heading):
            if has_text:
                yield [*path.values()], section
                section, has_text = [], False
            path = {level: text for level, text in path.items() if level < block.level}
            path[block.level] = one_line(block.text)
        has_text = has_text or not isinstance(block, Heading | Page)
        section.append(block)
    yield [*path.values()], section


def chunk(
    text: str, words: int = 64, rows: AbstractSet[int] = frozenset()
) -> list[tuple[int, int]]:
    """Return spans (start, end) of characters that cover all words, each of at most `words` words.

    `rows` has the offsets in `text` where rows of tables begin. A span ends before the first row
    that begins after a quarter of its words, or after half of them if `rows` has 500 or more.
    Without such a row it ends with the last paragraph, or else the last sentence, that ends in its
    second half. A span of several words also has at most 3 * `words` tokens (see `tokens_of`).
    """
    if words < 1:
        raise RetrievalError(f"a chunk needs at least one word, not {words}")
    found = list(_WORD.finditer(text))
    gaps = [_gap(text[a.end() : b.start()]) for a, b in pairwise([*found[:1], *found])]
    costs = [0, *accumulate(map(add, gaps, (tokens_of(word[0]) for word in found)))]
    spans, first = list[tuple[int, int]](), 0
    while first < len(found):
        last = bisect_right(costs, costs[first] + gaps[first] + _TOKENS * words) - 1
        limit = max(first + 1, min(first + words, last))
        end = _end_of_chunk(text, found, first, limit, rows)
        spans.append((found[first].start(), found[end - 1].end()))
        first = end
    return spans


def _gap(space: str) -> int:
    """Return the estimated tokens of the white space between two words."""
    return 0 if space in ("", " ") else len(space.encode("utf-8", "surrogatepass"))


def tokens_of(word: str) -> int:
    """Return how many tokens a word has at most in any tokenizer, estimated to limit a chunk's.

    Runs of a-z count one per three letters (two if over 15 letters long), other bytes one each.
    """
    runs = list(map(len, _LETTERS.findall(word)))
    letters = sum(-(-run // 3) if run <= _LONGEST else -(-2 * run // 3) for run in runs)
    return len(word.encode("utf-8", "surrogatepass")) - sum(runs) + letters


def space_cjk(text: str) -> str:
    """Return a text with blanks around Chinese and Japanese characters, to search for each."""
    return _LETTER.sub(r" \g<0> ", text)


def _end_of_chunk(
    text: str, found: list[re.Match[str]], first: int, limit: int, rows: AbstractSet[int]
) -> int:
    """Return the end of a chunk from word `first` that is full at `limit`."""
    least = (limit - first) // (4 if len(rows) < _MANY else 2)
    for end in range(first + least + 1, min(limit + 1, len(found))):
        if found[end].start() in rows:
            return end
    if limit >= len(found):
        return limit
    sentence = None
    for end in range(limit, first + (limit - first + 1) // 2 - 1, -1):
        if _PARAGRAPH.search(text, found[end - 1].end(), found[end].start()):
            return end
        if sentence is None and _SENTENCE_END.search(found[end - 1][0]):
            sentence = end
    return sentence or limit
