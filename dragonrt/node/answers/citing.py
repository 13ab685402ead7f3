"""Find the sources of an answer, and check the numbers and codes in it. All functions are pure.

The evidence of a file is how many bits (log2 of a probability ratio) likelier the file made the
answer's tokens (SPEC 1.10). A file with at least FEWEST_BITS and LEAST_SHARE of the largest
evidence is a source. If none has FEWEST_BITS, the file with most is, from CLOSE_BITS on.

A model may copy a code in part ("plum-39" of plum-otter-39). So codes are compared as whole tokens:
letters and digits that characters such as - / _ @ connect. A code has a digit, is an e-mail address
or has hyphened capitals. To compare, numbers lose grouping (1,250), units (75mg), st, nd, rd, th.

A mark connects a word of the answer with the source that has the most evidence for its tokens, at
least FEWEST_WORD_BITS. Another side's evidence is known for all its documents together, or not at
all, so each word in a source's sentence counts as FEWEST_WORD_BITS at least.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dragonrt.privacy.evidence import AnswerEvidence
from dragonrt.side import Side
from dragonrt.traces.events import TokenDecided
from dragonrt.wire.fields import MAX_CODE, MAX_MISSING
from dragonrt.wire.messages import Attribution, Source

FEWEST_BITS = 2.0
LEAST_SHARE = 0.1
CLOSE_BITS = 0.5  # evidence from which on a file may be named if none has FEWEST_BITS
LONGEST_SENTENCE = 280  # characters; a longer one is cut around its first word of the answer

_END = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*\s+(?=\D)|(?<=[。！？])|\n+")
_ABBREVIATION = re.compile(r"(?:^|\W)(?:Dr|Mr|Mrs|Ms|Prof|St|No|Nr|tel|vs|ca|approx|Jr|Sr)\.$")
WORD = re.compile(r"\w+(?:[-.:/@]\w+)*")
LEAST_WEIGHT = 0.05
"""The least weight of documents whose other values are told."""
FUNCTION_WORD = re.compile(r"[^\W\d]{1,3}")
_REFUSAL = re.compile(
    r"(?:sorry,? )?(?:i|we) (?:do not|don't|cannot|can't) (?:know|say|tell|find|answer)\b"
    r"|(?:i am|i'm) (?:not sure|sorry)\b|(?:it|that|this) is (?:not|un)\s?known\b"
)

_RUN = r"[^\W_]+"
_EMAIL = rf"{_RUN}(?:[._%+-]{_RUN}){{0,5}}@{_RUN}(?:[.-]{_RUN}){{1,5}}"
_TOKEN = rf"{_RUN}(?:(?:[-/_+&#@]|(?<=\d)[.:’'](?=\d)|(?<=\d),(?=\d{{3}}(?!\d))){_RUN})*"
_TOKENS = re.compile(f"{_EMAIL}|{_TOKEN}")
_NUMBERED = re.compile(r"^[^\S\n]*\d+[.)](?=\s)", re.MULTILINE)
_GROUPED = re.compile(r"\d{1,3}(?:[,’']\d{3})+(?:\.\d+)?")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_UNITS = "[mckµ]?m|[mk]?g|[mcd]?l|m?s|min|h|am|pm|[kM]?W|kWh|V|A|[kMGT]B|bar|psi|km/h|C|F"
_QUANTITY = re.compile(rf"(\d+(?:[.,:]\d+)*)(?:{_UNITS})")
_HYPHENED_CAPITALS = re.compile(r"[A-Z]+(?:-[A-Z]+)+")


@dataclass(frozen=True, slots=True)
class Passage:
    """A retrieved chunk of `file`, its `relevance` to the question, its `place` in characters."""

    title: str
    file: str
    relevance: float
    text: str = ""
    place: int = 0


def cited(
    passages: Sequence[Passage], bits: Sequence[float], answer: str, question: str
) -> list[Source]:
    """Return a Source for each file of `passages`, with the sentence nearest to the answer.

    `bits` has each file's evidence: how many bits likelier the file made the answer. If `bits` is
    empty, a file gets FEWEST_BITS if a sentence of it has half of the answer's words, else 0.
    """
    files = list(dict.fromkeys(passage.file for passage in passages))
    found = []
    for place, file in enumerate(files):
        read = [passage for passage in passages if passage.file == file]
        sentence, covered = sentence_of((each.text for each in read), answer, question)
        known = bits[place] if place < len(bits) else 0.0
        weight = known if bits else FEWEST_BITS * (covered >= 0.5)
        relevance = max(each.relevance for each in read)
        found.append(Source(read[0].title, file, relevance, weight, sentence))
    return found


def attribution(
    passages: Sequence[Passage], evidence: AnswerEvidence, answer: str, question: str
) -> Attribution:
    """Return a cloud's Attribution message: an answer's sources, and the codes it made up.

    A source has at least CLOSE_BITS of `evidence`. A code, such as A-17, counts as made up if
    neither a passage nor `question` has it.
    """
    sources = cited(passages, evidence.files, answer, question)
    unseen = [code.text for code in missing(answer, [question, *texts(passages)])]
    short = dict.fromkeys(code for code in unseen if len(code.encode()) <= MAX_CODE)
    nameable = tuple(source for source in sources if source.bits >= CLOSE_BITS)
    return Attribution(nameable, tuple(short)[:MAX_MISSING])


def disagreements(
    own: Sequence[str], others: Mapping[str, Sequence[str]], weight: float | None
) -> list[str]:
    """Return a line for the user for each number in an answer that documents contradict.

    `own` is number, value, number, value: each number of the answer, then the value that this
    side's documents have instead. `others` has such lists of other sides by name. `weight` is this
    side's weight in the mixture, None if unknown. Sides that weigh under LEAST_WEIGHT are ignored.
    """
    holders = {"your": (weight, own)}
    rest = None if weight is None else 1 - weight
    holders |= {f"the {name}'s": (rest, values) for name, values in others.items()}
    return [
        f"{said}: {whose} documents say {other}"
        for whose, (share, values) in holders.items()
        if share is None or share >= LEAST_WEIGHT
        for said, other in zip(values[::2], values[1::2], strict=False)
    ]


def storable(values: Sequence[str]) -> tuple[str, ...]:
    """Return, flat, the pairs (number, documents' value) of `values` short enough for the wire."""
    pairs = zip(values[::2], values[1::2], strict=True)
    fit = [p for p in pairs if all(1 <= len(v) <= MAX_CODE and v.isprintable() for v in p)]
    return tuple(chain.from_iterable(fit))[: MAX_MISSING // 2 * 2]


def shown_sources(
    own: Iterable[Source], others: Iterable[Source], most: float | None
) -> list[tuple[Side, Source]]:
    """Return the sources to show for an answer, each with its side; the device's come first.

    Sources with too little evidence are dropped. Evidence is a source's `bits`: how many bits
    likelier its file made the answer. A source of `others` counts at most `most` bits, which are
    the evidence of all documents of other sides together, None if unknown.
    """
    weighed: list[tuple[Side, Source, float]] = [
        *(("device", each, each.bits) for each in own),
        *(("cloud", each, each.bits if most is None else min(each.bits, most)) for each in others),
    ]
    largest = max((bits for *_, bits in weighed), default=0.0)
    least = max(FEWEST_BITS, LEAST_SHARE * largest) if largest >= FEWEST_BITS else largest
    return [(side, source) for side, source, bits in weighed if bits >= max(least, CLOSE_BITS)]


def texts(passages: Iterable[Passage]) -> list[str]:
    """Return the title and the text of each passage, one after the other in one list."""
    return [part for passage in passages for part in (passage.title, passage.text)]


def is_refusal(answer: str, refusal: str) -> bool:
    """Return whether an answer is empty, or begins with `refusal` or words like "I don't know"."""
    given, own = (" ".join(text.casefold().replace("’", "'").split()) for text in (answer, refusal))
    return not given or bool(own and given.startswith(own)) or _REFUSAL.match(given) is not None


def sentence_of(read: Iterable[str], answer: str, question: str) -> tuple[str, float]:
    """Return the sentence of texts `read` with the most words of `answer`, and its share of them.

    If several have as many, the words of `question` decide. Without sentences: ("", 0.0).
    """
    wanted, asked = content_words(answer), content_words(question)
    found = [each for text in read for each in _sentences(text)]

    def rank(sentence: str) -> tuple[int, int]:
        words = _words(sentence)
        return len(words & wanted), len(words & asked)

    best = max(found, key=rank, default="")
    return _cut(best, wanted), rank(best)[0] / max(1, len(wanted))


def _sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text; an abbreviation ends none."""
    found: list[str] = []
    first = 0
    for end in [*_END.finditer(text), None]:
        piece = text[first:] if end is None else text[first : end.end()]
        if end is not None and "\n" not in end[0] and _ABBREVIATION.search(piece.rstrip()):
            continue
        if piece.strip():
            found.append(" ".join(piece.split()))
        first = len(text) if end is None else end.end()
    return found


def _words(text: str) -> set[str]:
    return set(WORD.findall(text.casefold()))


def content_words(text: str) -> set[str]:
    """Return a text's words in lower case, without words of up to three letters if others exist."""
    words = _words(text)
    return {each for each in words if not FUNCTION_WORD.fullmatch(each)} or words


def _cut(sentence: str, wanted: set[str]) -> str:
    if len(sentence) <= LONGEST_SENTENCE:
        return sentence
    places = (word.start() for word in WORD.finditer(sentence) if word[0].casefold() in wanted)
    first = max(0, next(places, 0) - LONGEST_SENTENCE // 4)
    end = first + LONGEST_SENTENCE
    return (
        ("…" if first else "") + sentence[first:end].strip() + ("…" if end < len(sentence) else "")
    )


@dataclass(frozen=True, slots=True)
class Code:
    """A number or code (X-9, AB-CD, an e-mail) of a text, at its characters start to end."""

    text: str
    start: int
    end: int


def codes(text: str) -> list[Code]:
    """Return a text's numbers and codes (X-9, e-mails, AB-CD) in order, without item numbers."""
    if len(_NUMBERED.findall(text)) > 1:
        text = _NUMBERED.sub(lambda number: " " * len(number[0]), text)
    found = _TOKENS.finditer(text)
    return [Code(each[0], each.start(), each.end()) for each in found if _is_code(each[0])]


def missing(text: str, known: Iterable[str]) -> list[Code]:
    """Return the numbers and codes (X-9, e-mails, AB-CD) of `text` that no `known` text has."""
    found = codes(text)
    if not found:
        return []
    standing = {_plain(token) for each in known for token in _TOKENS.findall(each)}
    return [code for code in found if _plain(code.text) not in standing]


def _is_code(token: str) -> bool:
    digit = any(character.isdigit() for character in token)
    return digit or "@" in token or _HYPHENED_CAPITALS.fullmatch(token) is not None


def _plain(token: str) -> str:
    """Return the normal form of a token, for comparisons."""
    for form in (_ORDINAL, _QUANTITY):
        if number := form.fullmatch(token):
            token = number[1]
    return re.sub("[,’']", "", token) if _GROUPED.fullmatch(token) else token


FEWEST_WORD_BITS = 1.0
"""The least evidence of a marked word."""

DecidedText = tuple[str, TokenDecided]
"""A piece of an answer's text, and the decision that completed it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A slice of an answer, `start` to `end`, to show with the source that made it likeliest.

    `place` is the offset in characters of the source's chunk in its file; None on another side.
    """

    start: int
    end: int
    side: Side
    source: Source
    place: int | None = None


def marks(
    pieces: Sequence[DecidedText],
    passages: Sequence[Passage],
    evidence: AnswerEvidence,
    sources: Sequence[tuple[Side, Source]],
) -> list[Mark]:
    """Return the marks of an answer, in order: which of its words come from which source.

    `pieces` are the answer's text, `sources` the result of `shown_sources`. `evidence` has by how
    many bits each file made each token likelier. Words in a row with one source share a mark.
    """
    text, places = "", list[tuple[int, int, TokenDecided]]()
    for piece, event in pieces:
        places.append((len(text), len(text) + len(piece), event))
        text += piece
    found: list[Mark] = []
    joins = False
    for word in WORD.finditer(text):
        tokens = [e for start, end, e in places if start < word.end() and word.start() < end]
        mark = _marked(word, tokens, passages, evidence, sources)
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
    evidence: AnswerEvidence,
    sources: Sequence[tuple[Side, Source]],
) -> Mark | None:
    files = [_named(file) for file in dict.fromkeys(passage.file for passage in passages)]
    bits_of = [evidence.at(event.step) for event in tokens]
    weighed: list[tuple[float, bool, float]] = []
    for side, source in sources:
        if side == "device":
            known = [own[files.index(source.name)] for own, _ in bits_of if own]
        else:
            known = [other for _, other in bits_of if other is not None]
        has = word[0].casefold() in content_words(source.sentence)
        bits = sum(max(0.0, each) for each in known)
        weighed.append((max(bits, FEWEST_WORD_BITS * has), has, source.bits))
    if not weighed or max(weighed)[0] < FEWEST_WORD_BITS:
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
