"""Samples for an adapter: a document, and questions about it that do not see each other.

python -m train_models.adapter_samples CORPUS OUT.jsonl --n 8000
"""

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

from transformers import PreTrainedTokenizerBase

from retrieval.chunking import chunk

from .adapter_notes import joined, noted
from .adapter_sets import fairytales, fetched
from .compositions import composition
from .corpus import Corpus
from .countries import country_facts
from .gaps import gaps
from .notes import note
from .sample import UNKNOWN
from .sample import Sample as Segments

SYSTEM = "You answer questions from the given document in a few words."
Turn = tuple[str, str]  # question, answer


@dataclass(frozen=True, slots=True)
class Reading:
    """A document and branches of turns: a branch's later turns see its earlier ones."""

    document: str
    branches: list[list[Turn]]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One row; the document's tokens are of branch 0.

    A target is the position before it, its token, and whether it is an answer's first.
    """

    tokens: list[int]
    positions: list[int]
    branches: list[int]
    targets: list[tuple[int, int, bool]]


class Encoder:
    """Renders readings in the chat prompt."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, longest: int = 900) -> None:
        self._tokenizer = tokenizer
        self._longest = longest

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def encoded(self, reading: Reading) -> Encoded | None:
        """One row of a reading; what does not fit is left out, None if nothing is left."""
        head = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{reading.document}"
        tokens = self._ids(head)
        begin = len(tokens)
        positions, branches = list(range(begin)), [0] * begin
        targets: list[tuple[int, int, bool]] = []
        for number, turns in enumerate(reading.branches, 1):
            own: list[int] = []
            for i, (question, answer) in enumerate(turns):
                before = "\n<|im_start|>user\n" if i else "\n\n"
                own += self._ids(
                    f"{before}Question: {question}\nGive a short answer.<|im_end|>\n"
                    "<|im_start|>assistant\n"
                )
                said = self._ids(f"{answer}<|im_end|>")
                at = len(tokens) + len(own) - 1
                targets += [(at + j, token, j == 0) for j, token in enumerate(said)]
                own += said
            own.pop()
            if len(tokens) + len(own) > self._longest:
                targets = [t for t in targets if t[0] < len(tokens)]
                break
            positions += range(begin, begin + len(own))
            branches += [number] * len(own)
            tokens += own
        return Encoded(tokens, positions, branches, targets) if targets else None


def read_samples(path: Path) -> Iterator[Reading]:
    """The readings of a file."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            document, branches = json.loads(line)
            yield Reading(document, [[(q, a) for q, a in turns] for turns in branches])


_SQUAD_SHARES = {64: 0.18, 80: 0.10, 100: 0.10, 128: 0.14, 170: 0.06}  # by the words of a chunk
_UNKNOWN_ONLY_LEFT_OUT = 0.8  # of the chunks that answer nothing
_FETCHED_SHARE, _STORY_SHARE = 0.14, 0.06

# --- From the generators ---------------------------------------------------------------------


def _generated(r: Random, corpus: Corpus) -> Reading:
    """One to three generated notes as one document, and all of their questions."""
    makers: list[Callable[[Random], Segments]] = [
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


# --- From articles with questions ------------------------------------------------------------

_STOP = frozenset(
    ["the", "a", "an", "of", "in", "on", "at", "to", "and", "or", "is", "was", "were", "are", "did",
     "do", "does", "what", "who", "when", "where", "which", "how", "why", "many", "much", "for",
     "with", "by", "from", "that", "this", "it", "its", "as", "be", "has", "had", "have", "s",
     "name", "called"]
)  # fmt: skip


def content(text: str) -> list[str]:
    """Stems of the words that carry meaning."""
    return [w[:6] for w in re.findall(r"[a-z0-9]+", text.lower()) if w not in _STOP]


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of an article, and the article's questions with their answers."""

    article: int
    title: str
    text: str


class Articles:
    """Articles with questions, cut into chunks as the product cuts them."""

    def __init__(self, articles: list[tuple[str, list[tuple[str, list[Turn]]]]]) -> None:
        self._articles = articles

    def readings(self, r: Random, words: int, positives: int = 7) -> Iterator[Reading]:
        """All chunks of at most `words` words with their questions, and near misses."""
        pieces: list[Piece] = []
        found: list[list[Turn]] = []  # of every piece
        for number, (title, paragraphs) in enumerate(self._articles):
            for text, questions in paragraphs:
                cut = [text[a:b] for a, b in chunk(text, words)]
                first = len(pieces)
                pieces += [Piece(number, title, t) for t in cut]
                found += [[] for _ in cut]
                for question, answer in questions:
                    owner = _owner(cut, question, answer)
                    if owner is not None:
                        found[first + owner].append((question, answer))
        asked = [(i, q, a) for i, own in enumerate(found) for q, a in own]
        misses: list[list[str]] = [[] for _ in pieces]
        near = _Nearest([p.text for p in pieces])
        for i, question, answer in asked:
            here = pieces[i]
            low = answer.lower()
            candidates = [
                j for j in near.of(question, 12) if j != i and low not in pieces[j].text.lower()
            ]
            same = [j for j in candidates if pieces[j].article == here.article][:2]
            other = [j for j in candidates if pieces[j].article != here.article][:2]
            for j in same + other:
                misses[j].append(question)
        order = list(range(len(pieces)))
        r.shuffle(order)
        for i in order:
            known = found[i]
            r.shuffle(known)
            missing = misses[i]
            r.shuffle(missing)
            known = known[:positives]
            few = r.choice([0, 1, 1, 1, 2]) if known else r.choice([1, 2])
            turns = known + [(q, UNKNOWN) for q in missing[:few]]
            if len(turns) < 2 or (not known and r.random() < _UNKNOWN_ONLY_LEFT_OUT):
                continue
            r.shuffle(turns)
            yield Reading(_titled(r, pieces[i]), [[t] for t in turns])


def _titled(r: Random, piece: Piece) -> str:
    if not piece.title or piece.text.startswith(piece.title) or r.random() < 0.4:
        return piece.text
    return f"{piece.title}\n{piece.text}"


def _owner(cut: list[str], question: str, answer: str) -> int | None:
    """The chunk that answers: that with the answer and most of the question's words."""
    having = [i for i, text in enumerate(cut) if answer in text]
    if not having:
        return None
    words = set(content(question))
    scored = sorted(((len(words & set(content(cut[i]))), i) for i in having), reverse=True)
    if len(scored) > 1 and scored[0][0] == scored[1][0]:
        return None
    return scored[0][1]


class _Nearest:
    """Texts that share the rarest words with a question."""

    def __init__(self, texts: list[str]) -> None:
        self._where: dict[str, list[int]] = {}
        for i, text in enumerate(texts):
            for word in set(content(text)):
                self._where.setdefault(word, []).append(i)
        self._weight = {w: math.log(len(texts) / len(at)) for w, at in self._where.items()}
        self._lengths = [math.sqrt(len(text.split()) + 10) for text in texts]

    def of(self, question: str, n: int) -> list[int]:
        scores: Counter[int] = Counter()
        for word in set(content(question)):
            for i in self._where.get(word, []):
                scores[i] += self._weight[word] / self._lengths[i]  # type: ignore[assignment]
        return [i for i, _ in scores.most_common(n)]


def squad(path: Path, held_out: bool) -> Articles:
    """The corpus's articles; the last two are held out."""
    articles = json.loads(path.read_text(encoding="utf-8"))
    part = articles[-2:] if held_out else articles[:-2]
    return Articles(
        [
            (
                a.get("title", "").replace("_", " "),
                [
                    (p["context"], [(q, s.rstrip(".,")) for q, s in p["qas"] if s])
                    for p in a["paragraphs"]
                ],
            )
            for a in part
        ]
    )


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
            found.append(Reading(*noted(r)))
        elif x < 0.78:
            found.append(_generated(r, corpus))
        else:
            found += [Reading(*note) for note in joined(r)]
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
