"""Texts of figures: prompts to go on from, corpora to predict, and ROUGE to compare answers.

Prompts are sample questions and articles, or pieces of a file or directory of the user's.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from retrieval import DocumentError
from retrieval.documents import SUFFIXES, load
from retrieval.layout import Document
from scripts.train.controllers.prompt import Prompt, answer_prompt, prose_prompt

PROSE_WORDS = 24


def prompts(model: LanguageModel, count: int, corpus: Path | None = None) -> list[Prompt]:
    """Return so many prompts: questions behind their document and beginnings of articles in turn.

    Of a corpus, pieces that lie evenly spread in it; of articles with questions (JSON, as SQuAD's),
    questions behind their paragraph. Raises DragonError for a corpus that is neither, or shorter.
    """
    if corpus is not None and corpus.suffix == ".json":
        return _questions(model, count, corpus)
    if corpus is not None:
        words = read_corpus(corpus).evaluated.split()
        apart = len(words) // count
        if apart < PROSE_WORDS:
            raise DragonError(
                f"{corpus} has {len(words)} words to go on from, {count} prompts need "
                f"{count * PROSE_WORDS}: give --corpus a longer text"
            )
        return [_prose(model, words[start:]) for start in range(0, apart * count, apart)]
    questions = answerable()
    articles = _articles()
    return [
        _prose(model, articles[number // 2 % len(articles)].split())
        if number % 2
        else with_evidence(model, questions[number // 2 % len(questions)])
        for number in range(count)
    ]


def _questions(model: LanguageModel, count: int, file: Path) -> list[Prompt]:
    try:
        asked = [
            (str(article["title"]), str(part["text"]), str(each["question"]))
            for article in json.loads(file.read_text(encoding="utf-8"))
            for part in article["paragraphs"]
            for each in part["questions"]
        ]
        return [_asked(model, *asked[number * len(asked) // count]) for number in range(count)]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise DragonError(f"{file} holds no articles with questions: {error!r}") from None


def _prose(model: LanguageModel, words: list[str]) -> Prompt:
    return prose_prompt(model, " ".join(words[:PROSE_WORDS]))


def _articles() -> list[str]:
    return [load(file).text.strip() for file in sorted(bundled.documents("cloud").iterdir())]


def answerable() -> list[bundled.SampleQuestion]:
    """Return the sample questions that one document answers."""
    return [each for each in bundled.questions() if len(each.evidence) == 1]


def with_evidence(model: LanguageModel, question: bundled.SampleQuestion) -> Prompt:
    """Return the document with the evidence, then the question."""
    document = _evidence(question)
    return _asked(model, document.title, document.text, question.text)


def within_long_text(model: LanguageModel, question: bundled.SampleQuestion, tokens: int) -> Prompt:
    """Return a text of so many tokens, then the question.

    The text is the document with the evidence, anywhere among as many sample articles as fit.
    """
    random = Random(question.text)
    document = _evidence(question).text.strip()
    others = [article for article in _articles() if article != document]
    random.shuffle(others)
    text = [document]
    for article in others:
        longer = [*text, article]
        if len(model.encode(" ".join(longer))) > tokens:
            break
        text = longer
    random.shuffle(text)
    return _asked(model, "", " ".join(text), question.text)


def _evidence(question: bundled.SampleQuestion) -> Document:
    ((side, name),) = question.evidence
    return load(bundled.documents(side) / name)


def _asked(model: LanguageModel, title: str, text: str, question: str) -> Prompt:
    document = model.prompt.document_text(title, text)
    return answer_prompt(model, document + model.prompt.question_text((), question))


EVALUATED = 5
"""One part in so many is evaluated, if none is set apart for that."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """`evaluated` is predicted with the help of what is found in `retrieved`."""

    name: str
    evaluated: str
    retrieved: tuple[str, ...]


def read_corpus(path: Path) -> Corpus:
    """Read a file, whose last fifth is evaluated, or a directory: its file test.*, or each fifth.

    Raises DragonError if there is nothing to read.
    """
    if path.is_file():
        text = _read(path)
        cut = len(text) - len(text) // EVALUATED
        return Corpus(path.name, text[cut:], (text[:cut],))
    files = sorted(
        file for file in path.rglob("*") if file.is_file() and file.suffix.lower() in SUFFIXES
    )
    if len(files) < 2:
        raise DragonError(f"{path} is neither a text file nor a directory of at least two")
    apart = [file for file in files if file.stem == "test"][:1]
    evaluated = apart or files[EVALUATED - 1 :: EVALUATED] or files[-1:]
    name = "the sample articles" if path == bundled.documents("cloud") else path.name
    return Corpus(
        name,
        "\n\n".join(_read(file) for file in evaluated),
        tuple(_read(file) for file in files if file not in evaluated),
    )


def _read(path: Path) -> str:
    try:
        return load(path).text
    except DocumentError as error:
        raise DragonError(f"{path} {error}") from None


# What a generated text has in common with a reference (Lin 2004), in words: runs of letters and
# digits in lower case.


def rouge_n(candidate: str, reference: str, n: int) -> float:
    """Return ROUGE-n: the F1 score of the common n-grams, 0 if a text has fewer than n words."""
    ours, theirs = (
        Counter(zip(*(words[start:] for start in range(n)), strict=False))
        for words in map(_words, (candidate, reference))
    )
    common = (ours & theirs).total()
    return 2 * common / (ours.total() + theirs.total()) if common else 0.0


def rouge_l(candidate: str, reference: str) -> float:
    """Return ROUGE-L: the F1 score of the longest common subsequence."""
    ours, theirs = _words(candidate), _words(reference)
    lengths = [0] * (len(theirs) + 1)  # of the subsequences with each beginning of the reference
    for word in ours:
        before = 0
        for place, other in enumerate(theirs, start=1):
            longest = before + 1 if word == other else max(lengths[place], lengths[place - 1])
            before, lengths[place] = lengths[place], longest
    return 2 * lengths[-1] / (len(ours) + len(theirs)) if lengths[-1] else 0.0


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())
