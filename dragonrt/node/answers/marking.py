"""Marks: the words of an answer, each with the source that moved it. Pure.

A word's evidence for a file is the sum of its tokens' leave-one-out evidence (SPEC 1.10). The
source with the most moved the word, if that is at least FEWEST_BITS. The evidence of another side
is known for all of its documents together: the word belongs to the source whose sentence has it.
Such a sentence alone has FEWEST_BITS: two files that have the same word have little evidence each,
and in modes with a verifier it is unknown.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragonrt.node.answers.citing import FUNCTION_WORD, WORD, Passage, content
from dragonrt.privacy.evidence import Moved
from dragonrt.side import Side
from dragonrt.traces.events import TokenDecided
from dragonrt.wire.messages import Source

FEWEST_BITS = 1.0
"""The least evidence of a marked word."""

DecidedText = tuple[str, TokenDecided]
"""A piece of an answer's text, and the decision that completed it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Characters `start` to `end` of an answer, and the source that moved them.

    `place` is the first character of the chunk in its document; None for another side's.
    """

    start: int
    end: int
    side: Side
    source: Source
    place: int | None = None


def marks(
    pieces: Sequence[DecidedText],
    passages: Sequence[Passage],
    moved: Moved,
    sources: Sequence[tuple[Side, Source]],
) -> list[Mark]:
    """Return the marks of an answer in order; `sources` are those that it rests on.

    Neighbouring words with the same source are one mark, also across words of up to three letters.
    """
    text, places = "", list[tuple[int, int, TokenDecided]]()
    for piece, event in pieces:
        places.append((len(text), len(text) + len(piece), event))
        text += piece
    found: list[Mark] = []
    joins = False
    for word in WORD.finditer(text):
        tokens = [e for start, end, e in places if start < word.end() and word.start() < end]
        mark = _marked(word, tokens, passages, moved, sources)
        if mark is not None:
            if joins and mark == replace(found[-1], start=mark.start, end=mark.end):
                mark = replace(mark, start=found.pop().start)
            found.append(mark)
        joins = mark is not None or (joins and FUNCTION_WORD.fullmatch(word[0]) is not None)
    return found


def _marked(
    word: re.Match[str],
    tokens: Sequence[TokenDecided],
    passages: Sequence[Passage],
    moved: Moved,
    sources: Sequence[tuple[Side, Source]],
) -> Mark | None:
    """Return the mark of a word, if any source moved it."""
    files = [_named(file) for file in dict.fromkeys(passage.file for passage in passages)]
    evidence = [moved.at(event.step) for event in tokens]
    weighed: list[tuple[float, bool, float]] = []
    for side, source in sources:
        if side == "device":
            known = [own[files.index(source.name)] for own, _ in evidence if own]
        else:
            known = [other for _, other in evidence if other is not None]
        has = word[0].casefold() in content(source.sentence)
        bits = sum(max(0.0, each) for each in known)
        weighed.append((max(bits, FEWEST_BITS * has), has, source.bits))
    if not weighed or max(weighed)[0] < FEWEST_BITS:
        return None
    side, source = sources[weighed.index(max(weighed))]
    if side != "device":
        return Mark(*word.span(), side, source)
    likely = [passages[event.document] for event in tokens if event.document is not None]
    chunk = next(each for each in (*likely, *passages) if _named(each.file) == source.name)
    return Mark(*word.span(), side, source, chunk.place)


def _named(file: str) -> str:
    """Return a file's name as a Source has it: a long path is cut."""
    return Source("", file, 0.0).name
