"""Texts of figures: prompts to go on from, corpora to predict, and ROUGE to compare answers.

Prompts are sample questions and articles, or questions, first turns and pieces of files given.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TypeVar

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prompt import PromptTemplate, prompt_format
from dragonrt.errors import DragonError
from retrieval import DocumentError
from retrieval.documents import SUFFIXES, load
from scripts.lab.prompt import Prompt, TextKind, answer_prompt

T = TypeVar("T")

PROSE_WORDS = 24


@dataclass(frozen=True, slots=True)
class DocumentQuestion:
    """A question with the document that answers it, and what is expected."""

    title: str
    text: str
    question: str
    expected: tuple[str, ...]


def prompts(model: LanguageModel, each: int, corpora: Sequence[Path] = ()) -> list[Prompt]:
    """Return so many prompts of each corpus, in turn: number 0 of each, then number 1.

    Without corpora: sample questions behind their document, and beginnings of sample articles. Of
    articles with questions (JSON, as SQuAD's) questions behind their paragraph, of conversations
    (JSON lines, as Spec-Bench's) the first turns, of other text pieces; all evenly spread.
    Raises DragonError for a corpus that is none of these, or shorter.
    """
    if corpora:
        found = [_of_corpus(model, each, corpus) for corpus in corpora]
    else:
        asked, articles = answerable(), _articles()
        found = [
            [with_evidence(model, asked[number % len(asked)]) for number in range(each)],
            [_prose(model, articles[number % len(articles)].split()) for number in range(each)],
        ]
    return [prompt for several in zip(*found, strict=True) for prompt in several]


def _of_corpus(model: LanguageModel, count: int, corpus: Path) -> list[Prompt]:
    if kind_of(corpus) == "answers":
        return [with_evidence(model, one) for one in spread(answerable(corpus), count, corpus)]
    if kind_of(corpus) == "chat":
        return [_chat(model, turn) for turn in spread(_first_turns(corpus), count, corpus)]
    words = read_corpus(corpus).evaluated.split()
    starts = range(0, len(words) - PROSE_WORDS + 1, PROSE_WORDS)
    return [_prose(model, words[start:]) for start in spread(starts, count, corpus)]


def kind_of(corpus: Path) -> TextKind:
    """Return what goes on from a corpus, by its name."""
    kinds: dict[str, TextKind] = {".json": "answers", ".jsonl": "chat"}
    return kinds.get(corpus.suffix, "prose")


def spread(several: Sequence[T], count: int, corpus: Path | str) -> list[T]:
    """Choose so many of several, evenly apart. Raises DragonError if there are fewer."""
    if len(several) < count:
        raise DragonError(f"{corpus} has {len(several)} texts to go on from, not {count}")
    return [several[number * len(several) // count] for number in range(count)]


def answerable(file: Path | None = None) -> list[DocumentQuestion]:
    """Return the questions of an article file, or the sample questions that one document answers.

    Raises DragonError for a file of another form.
    """
    if file is None:
        return [
            DocumentQuestion(document.title, document.text, each.text, each.expected)
            for each in bundled.questions()
            if len(each.evidence) == 1
            for side, name in each.evidence
            for document in [load(bundled.documents(side) / name)]
        ]
    try:
        return [
            DocumentQuestion(
                str(article["title"]), str(part["text"]), str(each["question"]), (*each["answers"],)
            )
            for article in json.loads(file.read_text(encoding="utf-8"))
            for part in article["paragraphs"]
            for each in part["questions"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DragonError(f"{file} holds no articles with questions: {error!r}") from None


def _first_turns(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        return [str(json.loads(line)["turns"][0]) for line in lines]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise DragonError(f"{file} holds no conversations: {error!r}") from None


def _chat(model: LanguageModel, turn: str) -> Prompt:
    """Return the turn in the model's own chat template, or in running text."""
    asked = prompt_format(model.backend.tokenizer, PromptTemplate("{document}{question}"))
    text = asked.document_text("", "") + asked.question_text((), turn)
    return Prompt("chat", tuple(model.encode(text)), model.stop_tokens)


def _prose(model: LanguageModel, words: Sequence[str]) -> Prompt:
    return Prompt("prose", tuple(model.encode(" ".join(words[:PROSE_WORDS]))))


def _articles() -> list[str]:
    return [load(file).text.strip() for file in sorted(bundled.documents("cloud").iterdir())]


def with_evidence(model: LanguageModel, asked: DocumentQuestion) -> Prompt:
    """Return the document with the evidence, then the question."""
    document = model.prompt.document_text(asked.title, asked.text)
    return answer_prompt(model, document + model.prompt.question_text((), asked.question))


def within_long_text(
    model: LanguageModel, asked: DocumentQuestion, others: Sequence[str], tokens: int
) -> Prompt:
    """Return a text of so many tokens, then the question.

    The text is the document with the evidence, anywhere among as many of the others as fit.
    """
    random = Random(asked.question)
    document = asked.text.strip()
    left = [other for other in others if other != document]
    random.shuffle(left)
    text = [document]
    for other in left:
        longer = [*text, other]
        if len(model.encode(" ".join(longer))) > tokens:
            break
        text = longer
    random.shuffle(text)
    return with_evidence(model, replace(asked, title="", text=" ".join(text)))


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
