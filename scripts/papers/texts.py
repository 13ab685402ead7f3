"""Texts of experiments: what generated ones go on from, and what is predicted or retrieved.

They are sample questions and articles, or those of a file or directory of the user's.
"""

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
    """So many prompts: questions behind their document and beginnings of articles in turn.

    Of a corpus, pieces that lie evenly spread in it. Raises DragonError for a corpus that is no
    text, or shorter.
    """
    if corpus is not None:
        words = read_corpus(corpus).evaluated.split()
        apart = len(words) // count
        if apart < PROSE_WORDS:
            raise DragonError(
                f"{corpus} has {len(words)} words to go on from, {count} prompts need "
                f"{count * PROSE_WORDS}: give --corpus a longer text"
            )
        starts = range(0, apart * count, apart)
        texts = (" ".join(words[start : start + PROSE_WORDS]) for start in starts)
        return [prose_prompt(model, text) for text in texts]
    questions = answerable()
    articles = sorted(bundled.documents("cloud").iterdir())
    found = []
    for number in range(count):
        if number % 2:
            words = load(articles[number // 2 % len(articles)]).text.split()
            found.append(prose_prompt(model, " ".join(words[:PROSE_WORDS])))
        else:
            found.append(with_evidence(model, questions[number // 2 % len(questions)]))
    return found


def answerable() -> list[bundled.SampleQuestion]:
    """The sample questions that one document answers."""
    return [each for each in bundled.questions() if len(each.evidence) == 1]


def with_evidence(model: LanguageModel, question: bundled.SampleQuestion) -> Prompt:
    """The document with the evidence, then the question."""
    document = _evidence(question)
    return _asked(model, document.title, document.text, question)


def within_long_text(model: LanguageModel, question: bundled.SampleQuestion, tokens: int) -> Prompt:
    """A text of so many tokens, then the question: sample articles, as many as there is room for,
    and among them, anywhere, the document with the evidence."""
    random = Random(question.text)
    document = _evidence(question).text.strip()
    articles = [load(file).text.strip() for file in sorted(bundled.documents("cloud").iterdir())]
    others = [article for article in articles if article != document]
    random.shuffle(others)
    text = [document]
    for article in others:
        longer = [*text, article]
        if len(model.encode(" ".join(longer))) > tokens:
            break
        text = longer
    random.shuffle(text)
    return _asked(model, "", " ".join(text), question)


def _evidence(question: bundled.SampleQuestion) -> Document:
    ((side, name),) = question.evidence
    return load(bundled.documents(side) / name)


def _asked(model: LanguageModel, title: str, text: str, question: bundled.SampleQuestion) -> Prompt:
    told = model.prompt.document_text(title, text)
    return answer_prompt(model, told + model.prompt.question_text((), question.text))


EVALUATED = 5
"""Where nothing is set apart for evaluation, one part in so many is."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """`evaluated` is predicted with the help of what is found in `retrieved`."""

    name: str
    evaluated: str
    retrieved: tuple[str, ...]


def found_corpus() -> Path:
    """WikiText-2 in data/ here or in a directory beside this one; else the sample articles."""
    for directory in (Path("data"), *sorted(Path("..").glob("*/data"))):
        if (directory / "wikitext-2").is_dir():
            return directory / "wikitext-2"
    return bundled.documents("cloud")


def read_corpus(path: Path) -> Corpus:
    """A file: its last fifth is evaluated. A directory: its file named test.*, or each fifth file.

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
