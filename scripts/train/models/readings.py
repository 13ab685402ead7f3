"""Real questions of readers (SQuAD and its relatives), with a paragraph cut to a short document."""

from random import Random

from .corpus import Corpus, sentences
from .sample import UNKNOWN, Asking, Sample, answering

_WORDS = 72
_SLACK = 14  # a single sentence may be this much longer
_LONGEST_ANSWER = 12  # words
_UNANSWERED_SHARE = 0.12


def real_questions(
    r: Random,
    corpus: Corpus,
    held_out: bool = False,
    asking: Asking = None,
    turns: int | None = None,
) -> Sample:
    """Some sentences around the answer of a question, and the questions that they answer."""
    while True:
        paragraph = r.choice(r.choice(corpus.readings[held_out]))
        first = r.choice(paragraph.questions)
        if asking == "answer" and not first[1]:
            continue
        document = _window(r, sentences(paragraph.paragraph), first[1])
        if len(document.split()) > _WORDS + _SLACK:
            continue
        others = [pair for pair in paragraph.questions if pair != first]
        r.shuffle(others)
        pairs = _turns(r, document, [first, *others], asking, turns or r.choice([1, 2, 3, 4, 5]))
        needs_stray = r.random() < 0.1 or (asking == "unknown" and not pairs)
        if asking != "answer" and needs_stray and corpus.stray_questions:
            pairs.append((r.choice(corpus.stray_questions), UNKNOWN))
        if pairs:
            return answering(document, pairs[:turns] if turns else pairs)


def _window(r: Random, found: list[str], answer: str) -> str:
    """Neighbouring sentences around the answer, grown on random sides up to the limit."""
    at = next((i for i, s in enumerate(found) if answer and answer in s), r.randrange(len(found)))
    low = high = at
    while True:
        wider = [
            (a, b)
            for a, b in ((low - 1, high), (low, high + 1))
            if a >= 0 and b < len(found) and len(" ".join(found[a : b + 1]).split()) <= _WORDS
        ]
        if not wider:
            return " ".join(found[low : high + 1])
        low, high = r.choice(wider)


def _turns(
    r: Random, document: str, candidates: list[tuple[str, str]], asking: Asking, n: int
) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for question, answer in candidates:
        if len(pairs) >= n:
            break
        if answer and answer in document:
            if asking != "unknown" and len(answer.split()) <= _LONGEST_ANSWER:
                pairs.append((question, answer.rstrip(".")))
        elif asking != "answer" and r.random() < _UNANSWERED_SHARE:
            pairs.append((question, UNKNOWN))
    return pairs
