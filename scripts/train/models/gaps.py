"""Questions made from any sentence: a part of it is left out and asked for.

Templates give few forms of sentences, running text as many as it has sentences. Names and numbers
in it are put anew, so that an answer can only be copied, and their sort is known, so that the
question begins with the right word. Words of the question are dropped and moved: clozes made into
questions with such noise teach reading nearly as well as fluent ones (Lewis et al. 2019).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

from .compositions import composition
from .corpus import Corpus
from .notes import fact
from .prose import base_form, passage
from .sample import UNKNOWN, Sample, answering, asked, turns_of
from .values import capitalized, generate, pattern, word_lists, word_set

_LONGEST = 70  # words of a document
_UNKNOWN_SHARE = 0.25
_WHOLE_SHARE = 0.5  # where a sentence has what can be asked for whole
_PRONOUNS = {
    "number": ("how many", "what number"),
    "place": ("where",),
    "noun": ("what",),
    "bare noun": ("what",),
    "name": ("who", "what"),
}
"""What asks for a part of each pattern."""


@dataclass(frozen=True, slots=True)
class _Gap:
    """What is left out of a clause: the words around it, and what asks for it."""

    before: tuple[str, ...]
    answer: str
    after: tuple[str, ...]
    pronouns: tuple[str, ...]


def gaps(r: Random, corpus: Corpus) -> Sample:
    """A few sentences of any sort, and questions about parts of them."""
    while True:
        found, sorts = _document(r, corpus)
        document = " ".join(found)
        if len(document.split()) > _LONGEST:
            continue
        pairs: list[tuple[str, str]] = []
        for _ in range(r.choice([2, 2, 3, 3, 4])):
            missing = r.random() < _UNKNOWN_SHARE
            pair = _near_miss(r, corpus, found, sorts) if missing else _known(r, found, sorts)
            if pair and pair not in pairs:
                pairs.append((asked(r, pair[0]), pair[1]))
        if pairs:
            return answering(document, pairs)


def _document(r: Random, corpus: Corpus) -> tuple[list[str], dict[str, str]]:
    """Sentences, and the sort of each value that was put into them."""
    x = r.random()
    if x < 0.25:
        return [fact(r).text for _ in range(r.choice([1, 2, 3]))], {}
    if x < 0.35:
        return turns_of(composition(r))[0].split("\n"), {}
    taken, _, _ = passage(r, corpus, 15, r.choice([30, 45, 66]))
    first = r.randrange(len(taken))
    taken = taken[first : first + r.choice([1, 1, 2, 3])]
    if r.random() < 0.25:
        taken.insert(r.randint(0, len(taken)), fact(r).text)
    sorts: dict[str, str] = {}
    return [_put_anew(r, sentence, sorts) for sentence in taken], sorts


def _put_anew(r: Random, sentence: str, sorts: dict[str, str]) -> str:
    """Other names and numbers; one that occurs twice becomes the same twice."""
    renamed: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        old = match[0]
        if old in _calendar():
            return old
        before = sentence[: match.start()].split()[-1].lower()
        place = before in ("in", "at", "near", "from", "to", "into")
        slot = "city" if place else r.choice(["p", "p", "p", "company"])
        new = renamed.setdefault(old, generate(r, slot))
        sorts[new] = "place" if place else "person" if slot == "p" else "thing"
        return new

    def number(match: re.Match[str]) -> str:
        old = match[0]
        year = re.fullmatch(r"1[0-9]\d\d|20\d\d", old) is not None
        new = str(r.randint(1100, 2029)) if year else str(r.randint(2, 10 ** r.randint(1, 3)))
        return renamed.setdefault(old, new)

    return (
        pattern("number").sub(number, pattern("name").sub(name, sentence))
        if r.random() < 0.8
        else sentence
    )


@cache
def _calendar() -> frozenset[str]:
    lists = word_lists()
    return frozenset(lists["month"]) | frozenset(lists["weekday"])


def _known(r: Random, found: list[str], sorts: dict[str, str]) -> tuple[str, str] | None:
    """A question and its answer, which stands once in the document."""
    text = " ".join(found)
    sentence = r.choice(found)
    if r.random() < _WHOLE_SHARE and (pair := _whole(r, sentence)):
        return pair
    clauses = pattern("clause break").split(sentence)
    clause = r.choice(clauses).strip() if r.random() < 0.7 else sentence
    possible = [g for g in _gaps(clause, sorts) if text.count(g.answer) == 1 and not _listed(g)]
    if not possible:
        return None
    gap = r.choice(possible)
    question = _question(r, gap)
    return (question, gap.answer) if question else None


def _listed(gap: _Gap) -> bool:
    """Whether it is a part of 'a and b': half an answer."""
    return bool({"and", "or"} & {*gap.before[-1:], *gap.after[:1]})


def _whole(r: Random, sentence: str) -> tuple[str, str] | None:
    """What somebody is to do, why something is so, or what one does when; the answer is whole."""
    if match := pattern("advice").match(sentence):
        condition = match["c"][0].lower() + match["c"][1:]
        own = match["a"].split()[0] in word_set("subject word") or match["a"][0].isupper()
        asks = ("What happens", "What") if own else ("What do I do", "What should I do")
        return f"{r.choice(asks)} {condition}?", match["a"].strip()
    for sort, pronoun, end in (("cause", "Why", ""), ("deed", "What", " to do")):
        match = pattern(sort).search(sentence)
        if match is None:
            continue
        words = _words(sentence[: match.start()])[-9:]
        if len(words) > 1 and words[0].lower() in word_lists()["stop word"]:
            words[0] = words[0].lower()
        turned = _inverted(words)
        if len(words) > 1 and turned != words:
            return f"{pronoun} {' '.join(turned)}{end}?", match[1].strip()
    return None


def _gaps(clause: str, sorts: dict[str, str]) -> Iterator[_Gap]:
    seen: set[tuple[int, int]] = set()
    for value, sort in sorts.items():
        for match in re.finditer(re.escape(value), clause):
            seen.add(match.span())
            pronouns = {"person": ("who",), "place": ("where", "what place")}.get(sort, ("what",))
            yield _gap(clause, match.span(), pronouns)
    for sort, pronouns in _PRONOUNS.items():
        for match in pattern(sort).finditer(clause):
            span = match.span(match.lastindex or 0)
            if any(a < span[1] and span[0] < b for a, b in seen):
                continue
            seen.add(span)
            own = pronouns
            before = clause[: span[0]].split()
            if sort == "number" and before and before[-1] in ("in", "since", "from", "until"):
                own = ("when", "what year")
            if sort == "name" and match[0] in _calendar():
                own = ("when", "what day" if match[0].endswith("day") else "what month")
            yield _gap(clause, span, own)
    subject = pattern("subject").match(clause)
    verbal = subject and (subject[2] in word_set("auxiliary") or base_form(subject[2]))
    if subject and verbal and subject[1] not in word_lists()["not a name"]:
        answer = subject[1]
        pronoun = "what" if answer.split()[0] in ("The", "A", "An", "My", "Our") else "who"
        yield _gap(clause, subject.span(1), (pronoun,))


def _gap(clause: str, span: tuple[int, int], pronouns: tuple[str, ...]) -> _Gap:
    before, after = clause[: span[0]], clause[span[1] :]
    answer = clause[span[0] : span[1]].strip(".,;:!?")
    return _Gap(tuple(_words(before)), answer, tuple(_words(after)), pronouns)


def _words(text: str) -> list[str]:
    return [w for w in (w.strip('.,;:!?"()[]') for w in text.split()) if w]


def _question(r: Random, gap: _Gap) -> str:
    """The pronoun and the words near the gap, in one of four orders; empty if too few remain."""
    pronoun = r.choice(gap.pronouns)
    before, after = list(gap.before[-8:]), list(gap.after[:8])
    if before and len(before) == len(gap.before) and before[0] not in ("I", *_calendar()):
        known = before[0][0].isupper() and before[0].lower() in word_lists()["stop word"]
        before[0] = before[0].lower() if known else before[0]
    if not before:
        words = [pronoun, *after]
    elif r.random() < 0.2:
        words = [*before, pronoun, *after]
    else:
        tail = [] if r.random() < 0.6 else after
        preposition = before.pop() if before[-1] in word_set("preposition before a gap") else ""
        words = [pronoun, *_inverted(before), *tail]
        if preposition and pronoun != "where":
            words = [preposition, *words] if r.random() < 0.6 else [*words, preposition]
    if pronoun == "how many":  # "how many lengths": what is counted stands behind the number
        at = words.index(pronoun)
        if after and after[0] in words:
            words.remove(after[0])
        words[at + 1 : at + 1] = after[:1]
    words = _with_noise(r, words, pronoun)
    while words and words[-1] != pronoun and words[-1] in word_set("loose end"):
        words.pop()
    telling = [w for w in words if w.lower() not in word_lists()["stop word"] and len(w) > 3]
    if not telling or not 3 <= len(words) <= 18:
        return ""
    return capitalized(" ".join(words)) + "?"


def _inverted(words: list[str]) -> list[str]:
    """'Anna walked along' as 'did Anna walk along', 'the sea was' as 'was the sea'."""
    for i, word in enumerate(words):
        if word in word_set("auxiliary"):
            return [word, *words[:i], *words[i + 1 :]]
        if i and (base := base_form(word)):
            return ["did", *words[:i], base, *words[i + 1 :]]
    return words


def _with_noise(r: Random, words: list[str], pronoun: str) -> list[str]:
    chance = r.choice([0.0, 0.0, 0.0, 0.1, 0.2])
    kept = [w for w in words if w == pronoun or w in word_set("kept word") or r.random() >= chance]
    if r.random() < 0.08 and len(kept) > 3:
        i = r.randrange(1, len(kept) - 1)
        kept[i], kept[i + 1] = kept[i + 1], kept[i]
    return kept


def _near_miss(
    r: Random, corpus: Corpus, found: list[str], sorts: dict[str, str]
) -> tuple[str, str] | None:
    """A question that the document does not answer: one word is another's, or all are."""
    text = " ".join(found).lower()
    pair = _known(r, found, sorts)
    if pair and (question := _swapped(r, pair[0], sorts, text)):
        return question, UNKNOWN
    others, other_sorts = _document(r, corpus)
    foreign = _known(r, others, other_sorts)
    if foreign is None:
        return None
    telling = re.findall(r"[a-z]{4,}", foreign[0].lower())
    here = sum(w in text for w in telling)
    return (foreign[0], UNKNOWN) if 2 * here <= len(telling) else None


def _swapped(r: Random, question: str, sorts: dict[str, str], text: str) -> str:
    """The question about another person, number or thing; empty if it has none."""
    slots = {"person": "p", "place": "city", "thing": "company"}
    candidates = [(value, slots[sort]) for value, sort in sorts.items() if value in question]
    candidates += [(m[0], "number") for m in pattern("number").finditer(question)]
    candidates += [(w, _lists()[w]) for w in re.findall(r"\w+", question) if w in _lists()]
    if not candidates:
        return ""
    old, slot = r.choice(candidates)
    new = str(r.randint(2, 2029)) if slot == "number" else generate(r, slot)
    if new.lower() in text or old.lower() in new.lower():
        return ""
    return re.sub(rf"\b{re.escape(old)}\b", lambda _: new, question)


@cache
def _lists() -> dict[str, str]:
    lists = word_lists()
    return {
        entry: name for name in lists["swapped list"] for entry in lists[name] if " " not in entry
    }
