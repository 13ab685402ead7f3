"""The samples of an adapter: a document, and questions about it that do not see each other.

python -m scripts.train.models.adapter_samples CORPUS OUT.jsonl --n 5000 [--clones CLONES]
"""

import argparse
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random

from .adapter_articles import Articles, squad
from .adapter_notes import joined, noted
from .adapter_sets import fairytales, fetched
from .compositions import composition
from .corpus import Corpus
from .countries import country_facts
from .gaps import gaps
from .notes import note
from .sample import UNKNOWN, Reading, Sample, Turn

_SQUAD_SHARES = {64: 0.18, 80: 0.10, 100: 0.10, 128: 0.14, 170: 0.06}  # by the words of a chunk
_FETCHED_SHARE, _STORY_SHARE = 0.14, 0.06


def _generated(r: Random, corpus: Corpus) -> Reading:
    """One to three generated notes as one document, and all of their questions."""
    makers: list[Callable[[Random], Sample]] = [
        note,
        composition,
        lambda r: gaps(r, corpus),
        lambda r: country_facts(r, corpus),
    ]
    documents: list[str] = []
    known: list[Turn] = []
    missing: list[Turn] = []
    number = r.choice([1, 1, 2, 2, 3])
    for _ in range(number):
        segments = r.choices(makers, [0.36, 0.44, 0.08, 0.12])[0](r)
        documents.append(segments[0][0].removeprefix("Document: ").strip())
        for (q, _), (a, _) in zip(segments[1::2], segments[2::2], strict=True):
            question = q.removeprefix("Question: ").removesuffix("\nAnswer:")
            (missing if a.strip() == UNKNOWN else known).append((question, a.strip()))
    foreign = composition(r, "unknown" if r.random() < 0.5 else "answer", 2)
    missing += [
        (q[0].removeprefix("Question: ").removesuffix("\nAnswer:"), UNKNOWN) for q in foreign[1::2]
    ]
    r.shuffle(missing)
    turns = known + missing[: r.choice([1, 1, 2, 3])]
    r.shuffle(turns)
    document = r.choice(["\n", "\n\n", "\n\n", " "]).join(documents)
    return Reading(document, _branches(r, turns))


def _branches(r: Random, turns: list[Turn]) -> list[list[Turn]]:
    """Mostly one turn to a branch; some conversations."""
    if len(turns) > 2 and r.random() < 0.2:
        return [turns[:3], *[[t] for t in turns[3:]]]
    return [[t] for t in turns]


def _fetched(clones: Path, without: Path | None) -> Articles:
    """Articles of fetched sets that share neither title nor words with `without`."""
    kept_away = json.loads(without.read_text(encoding="utf-8")) if without else []
    texts = [p["text"] for a in kept_away for p in a["paragraphs"]]
    titles = {a["title"].replace("_", " ") for a in kept_away}
    return Articles([a for a in fetched(clones, texts) if a[0] not in titles])


def samples(args: argparse.Namespace) -> list[Reading]:
    """The mixture: articles with questions, notes, and what the models' generators make."""
    r = Random(args.seed)
    corpus = Corpus.read(args.corpus)
    articles = squad(args.corpus / "squad.json", False)
    found: list[Reading] = []
    for words, share in _SQUAD_SHARES.items():
        found += islice(articles.readings(r, words), round(args.n * share))
    if args.clones:
        sets = _fetched(args.clones, args.without)
        found += islice(sets.readings(r, r.choice([64, 128])), round(args.n * _FETCHED_SHARE))
        stories = Articles(fairytales(args.clones))
        found += islice(stories.readings(r, 90), round(args.n * _STORY_SHARE))
    while len(found) < args.n:
        x = r.random()
        if x < 0.60:
            found.append(noted(r))
        elif x < 0.78:
            found.append(_generated(r, corpus))
        else:
            found += joined(r)
    r.shuffle(found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Write samples for an adapter.")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--n", type=int, default=4000, help="documents")
    parser.add_argument("--clones", type=Path, help="directory of clones named owner+repository")
    parser.add_argument("--without", type=Path, help="evaluation file whose articles are left out")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with args.out.open("w", encoding="utf-8") as file:
        for reading in samples(args):
            file.write(json.dumps([reading.document, reading.branches], ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
