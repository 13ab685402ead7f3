"""Running text: passages, questions cut from their sentences, people's questions, continuation."""

from collections.abc import Iterator
from functools import cache
from random import Random

from .corpus import Article, Corpus, sentences
from .sample import UNKNOWN, Asking, Sample, answering
from .values import pattern, word_lists, word_set

_ARTICLES = frozenset(["the", "a", "an", "his", "her", "its", "their"])
_PRONOUNS = frozenset(["he", "she", "I", "they", "it", "we"])
_UNKNOWN_SHARE = 0.06
_WORDS = 72  # of a document with real questions
_SLACK = 14  # a single sentence may be this much longer
_LONGEST_ANSWER = 12  # words of an answer to a real question
_UNANSWERED_SHARE = 0.12


def passage(r: Random, corpus: Corpus, least: int, most: int) -> tuple[list[str], Article, int]:
    """Draw sentences of `least` to `most` words, their article, and the paragraph after them."""
    while True:
        article = r.choice(r.choices(corpus.texts, corpus.weights)[0])
        end = r.randrange(len(article))
        paragraphs: list[str] = []
        while end < len(article) and sum(len(p.split()) for p in paragraphs) < least:
            paragraphs.append(article[end])
            end += 1
        found = sentences(" ".join(paragraphs))
        start = r.randrange(len(found)) if len(found) > 3 and r.random() < 0.5 else 0
        taken: list[str] = []
        words = 0
        for sentence in found[start:]:
            length = len(sentence.split())
            if words + length > most:
                break
            taken.append(sentence)
            words += length
        if words >= 12:
            return taken, article, end


def reading(r: Random, corpus: Corpus) -> Sample:
    """Make a passage with questions cut from its sentences."""
    while True:
        found, _, _ = passage(r, corpus, 25, 66)
        document = " ".join(found)
        pairs = list(_questions(r, found))
        r.shuffle(pairs)
        pairs = pairs[:3]
        if r.random() < 0.35 or not pairs:
            gap = _cloze(r, found)
            if gap and (pairs or r.random() < 0.4):
                pairs.append(gap)
        turns = []
        for question, answer in pairs:
            if answer not in document or len(question.split()) >= 34:
                continue
            if r.random() >= _UNKNOWN_SHARE:
                turns.append((question, answer))
            elif foreign := _foreign_question(r, corpus):
                turns.append((foreign, UNKNOWN))
        if turns:
            return answering(document, turns)


def continuation(r: Random, corpus: Corpus, long: bool = False) -> Sample:
    """Make a passage put before another piece of the same article, or plain text."""
    found, article, end = passage(r, corpus, 45, 75)
    document = " ".join(found)
    if r.random() < 0.12:
        plain = "\n".join(article[max(0, end - 1) : end + 12]) if long else document
        return [(plain + "\n", "text")]
    start = end if r.random() < 0.6 else r.randrange(len(article))
    text = "\n".join(article[start : start + (14 if long else 6)])
    if document in text or len(text) < 80:
        text = "\n".join(article[(start + 2) % len(article) :][:6])
    words = 340 if long else r.choice([60, 90, 130])
    text = " ".join(text.split(" ")[:words])
    return [(f"Document: {document}\n\n", "passage"), (text + "\n", "text")]


def _foreign_question(r: Random, corpus: Corpus) -> str:
    pairs = list(_questions(r, passage(r, corpus, 25, 66)[0]))
    if pairs and (r.random() < 0.6 or not corpus.stray_questions):
        return r.choice(pairs)[0]
    return r.choice(corpus.stray_questions) if corpus.stray_questions else ""


def _questions(r: Random, found: list[str]) -> Iterator[tuple[str, str]]:
    text = " ".join(found)
    for sentence in found:
        if 5 <= len(sentence.split()) <= 45:
            yield from _about_subjects(r, sentence)
            yield from _about_details(r, sentence, text)


def _about_subjects(r: Random, sentence: str) -> Iterator[tuple[str, str]]:
    not_a_name = word_set("not a name")
    match = pattern("clause").match(sentence)
    if match and match[1].split()[0] not in not_a_name and not match[2].startswith("and "):
        yield f"{'Who' if r.random() < 0.7 else 'Who or what'} {match[2]}?", match[1]
    match = pattern("action").match(sentence)
    if match and match[1].split()[0] not in not_a_name and (base := base_form(match[2])):
        pronoun = "What" if match[3].split()[0] in _ARTICLES else "Where"
        yield f"{pronoun} did {match[1]} {base}?", match[3]
    match = pattern("definition").match(sentence)
    if match and len(match[1]) > 2 and match[1].split()[0] not in not_a_name - {"The"}:
        subject = match[1]
        if subject.startswith(("The ", "A ", "An ")):
            subject = subject[0].lower() + subject[1:]
        yield f"What {match[2]} {subject}?", match[3]


def _about_details(r: Random, sentence: str, text: str) -> Iterator[tuple[str, str]]:
    length = len(sentence.split())
    match = pattern("year").search(sentence)
    if match and length < 32:
        if len(pattern("year").findall(text)) == 1:
            yield r.choice(["Which year is mentioned?", "What year does the text name?"]), match[1]
        else:
            yield f"In which year: {_blank(sentence, match[1])}", match[1]
    for match in pattern("count").finditer(sentence):
        unit = match[2]
        if unit not in ("times", "more", "than", "percent") and text.count(unit) == 1:
            ending = " are mentioned?" if r.random() < 0.5 else "?"
            yield f"How many {unit}{ending}", match[1]
    match = pattern("quote").search(sentence)
    if match and match[2] not in _PRONOUNS:
        yield f'Who said "{match[1]}"?', match[2]
    match = pattern("cause of a sentence").search(sentence)
    if match:
        yield f"Why is it that {match[1][0].lower()}{match[1][1:]}?", "because " + match[2]
    match = pattern("naming").search(sentence)
    if match and length < 30:
        yield f"What name is given in the text: {_blank(sentence, match[1])}", match[1]


@cache
def _irregular() -> dict[str, str]:
    return dict(pair.split(":") for pair in word_lists()["irregular verb"])


def base_form(past: str) -> str:
    """The infinitive of a past tense, or an empty string for another word."""
    if past in _irregular():
        return _irregular()[past]
    if len(past) < 5 or not past.endswith("ed"):
        return ""
    if past[:-1].endswith("sse"):
        return past[:-2]
    if past[:-1].endswith(("ce", "ge", "ve", "se", "ze", "ate", "ite", "ute")):
        return past[:-1]
    return past[:-2]


def _blank(sentence: str, answer: str) -> str:
    """The sentence with a gap; of a long one only the words around the gap."""
    words = sentence.replace(answer, "____", 1).split()
    if len(words) <= 16:
        return " ".join(words)
    gap = next((i for i, w in enumerate(words) if "____" in w), 0)
    return " ".join(words[max(0, gap - 7) : gap + 8])


def _cloze(r: Random, found: list[str]) -> tuple[str, str] | None:
    sentence = r.choice(found)
    named = pattern("cloze").findall(sentence)
    if not named or r.random() < 0.4:
        words = sentence.split()
        if len(words) < 6:
            return None
        i = r.randrange(1, len(words) - 1)
        named = [" ".join(words[i : i + r.choice([1, 1, 2, 2, 3])]).rstrip(".,;:!?\"'")]
    answer = r.choice(named)
    if len(answer) < 3 or sentence.count(answer) != 1:
        return None
    lead = r.choice(["Fill in the blank: ", "Complete: ", "What is missing? ", ""])
    return lead + _blank(sentence, answer), answer


def real_questions(
    r: Random,
    corpus: Corpus,
    held_out: bool = False,
    asking: Asking = None,
    turns: int | None = None,
) -> Sample:
    """Take some sentences around the answer of a question, and the questions that they answer."""
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
    """Return neighbouring sentences around the answer, grown on random sides up to the limit."""
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
