"""The samples of an adapter: a document, and questions about it that do not see each other."""

import json
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated

from dragonrt.cli.options import option

from .adapter_articles import fairytales, fetched, readings, squad
from .adapter_notes import joined, noted
from .corpus import Corpus
from .countries import country_facts
from .notes import note
from .sample import UNKNOWN, Reading, Turn, turns_of

_SQUAD_SHARES = {64: 0.18, 80: 0.10, 100: 0.10, 128: 0.14, 170: 0.06}  # by the words of a chunk
_FETCHED_SHARE, _STORY_SHARE = 0.14, 0.06


def _generated(r: Random, corpus: Corpus) -> Reading:
    """One to three generated notes as one document, and all of their questions."""
    documents: list[str] = []
    known: list[Turn] = []
    missing: list[Turn] = []
    for _ in range(r.choice([1, 1, 2, 2, 3])):
        document, turns = turns_of(note(r) if r.random() < 0.8 else country_facts(r, corpus))
        documents.append(document)
        known += [turn for turn in turns if turn[1] != UNKNOWN]
        missing += [turn for turn in turns if turn[1] == UNKNOWN]
    foreign = note(r, asking="unknown" if r.random() < 0.5 else "answer", turns=2)
    missing += [(question, UNKNOWN) for question, _ in turns_of(foreign)[1]]
    r.shuffle(missing)
    turns = known + missing[: r.choice([1, 1, 2, 3])]
    r.shuffle(turns)
    document = r.choice(["\n", "\n\n", "\n\n", " "]).join(documents)
    branches = [[t] for t in turns]
    if len(turns) > 2 and r.random() < 0.2:
        branches = [turns[:3], *branches[3:]]  # a conversation
    return Reading(document, branches)


def samples(
    corpus: Path, n: int, clones: Path | None, without: Path | None, seed: int
) -> list[Reading]:
    """Mix articles with questions, notes, and what the models' generators make."""
    r = Random(seed)
    texts = Corpus.read(corpus)
    articles = squad(corpus / "squad.json")
    found: list[Reading] = []
    for words, share in _SQUAD_SHARES.items():
        found += islice(readings(articles, r, words), round(n * share))
    if clones:
        sets = fetched(clones, without)
        found += islice(readings(sets, r, r.choice([64, 128])), round(n * _FETCHED_SHARE))
        found += islice(readings(fairytales(clones), r, 90), round(n * _STORY_SHARE))
    while len(found) < n:
        x = r.random()
        if x < 0.60:
            found.append(noted(r))
        elif x < 0.78:
            found.append(_generated(r, texts))
        else:
            found += joined(r)
    r.shuffle(found)
    return found


def adapter_samples(
    corpus: Path,
    out: Path,
    *,
    n: Annotated[int, option("Documents.", default="4000", low=1)] = 4000,
    clones: Annotated[Path | None, option("Clones named owner+repository.", kind="DIR")] = None,
    without: Annotated[
        Path | None, option("Evaluation file whose articles are left out.", kind="FILE")
    ] = None,
    seed: Annotated[int, option("All chance comes from it.", default="0", low=0)] = 0,
) -> None:
    """Write the samples of an adapter: documents, and questions that do not see each other."""
    with out.open("w", encoding="utf-8") as file:
        for made in samples(corpus, n, clones, without, seed):
            file.write(json.dumps([made.document, made.branches], ensure_ascii=False) + "\n")
