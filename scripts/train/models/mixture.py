"""The mixture of samples that the models are trained on."""

from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Annotated

from dragonrt.cli.options import option

from .corpus import Corpus
from .countries import country_facts
from .notes import fact, note
from .prose import continuation, passage, reading, real_questions
from .sample import UNKNOWN, Sample, text_of
from .values import generate

_LONG_TEXT_SHARE = 0.45


def sources(corpus: Corpus) -> list[tuple[float, Callable[[Random], Sample]]]:
    """Every sort of sample that the corpus has the texts for, with its weight."""
    found: list[tuple[float, Callable[[Random], Sample]]] = [
        (0.52, note),
        (0.31, lambda r: reading(r, corpus)),
        (0.13, lambda r: continuation(r, corpus)),
        (0.02, lambda r: _copy(r, corpus)),
        (0.01, lambda r: _no_document(r, corpus)),
    ]
    if corpus.countries:
        found.append((0.08, lambda r: country_facts(r, corpus)))
    if corpus.readings[False]:
        found.append((0.13, lambda r: real_questions(r, corpus)))
    return found


def sample(r: Random, corpus: Corpus, long: bool = False) -> Sample:
    """One sample of the mixture; with `long`, more running text."""
    if long and r.random() < _LONG_TEXT_SHARE:
        return continuation(r, corpus, long=True)
    weights, generators = zip(*sources(corpus), strict=True)
    generator: Callable[[Random], Sample] = r.choices(generators, weights)[0]
    return generator(r)


def _copy(r: Random, corpus: Corpus) -> Sample:
    """The same line twice: dense practice for copying, in a shape that no prompt has."""
    x = r.random()
    if x < 0.4:
        line = " ".join(generate(r, "value") for _ in range(r.randint(5, 14)))
    elif x < 0.7:
        line = " ".join(fact(r).text for _ in range(r.randint(1, 3)))
    else:
        line = " ".join(passage(r, corpus, 15, 40)[0])
    return [(line + "\n", "document"), (line + "\n", "text")]


def _no_document(r: Random, corpus: Corpus) -> Sample:
    question = r.choice(fact(r).questions)[0]
    if corpus.stray_questions and r.random() < 0.5:
        question = r.choice(corpus.stray_questions)
    return [(f"Question: {question}\nAnswer:", "question"), (f" {UNKNOWN}\n", "answer")]


def samples(
    corpus: Path, out: Path, *, n: Annotated[int, option("Samples.", default="8000", low=1)] = 8000
) -> None:
    """Write samples with questions, one to a file: a corpus for `verifier` and `controller`."""
    out.mkdir(parents=True, exist_ok=True)
    r, texts = Random(0), Corpus.read(corpus)
    made = (text_of(sample(r, texts)) for _ in count())
    asking = (text for text in made if "\nAnswer:" in text)
    for index, text in enumerate(islice(asking, n)):
        (out / f"{index:05d}.txt").write_text(text, encoding="utf-8")
