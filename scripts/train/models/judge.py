"""Scores of an adapter on the file that ships, in the engine that ships.

Each question's documents are spread over two sides, weighed by the cosines of the bundled embedder,
and answered by the mixture. Forms are those that are kept for judging; articles are held out.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, NamedTuple

from dragonrt import bundled
from dragonrt.backends.backend import Document
from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.backends.llama_cpp.model_file import base_file, merged
from dragonrt.backends.model import LanguageModel
from dragonrt.cli.loading import counting
from dragonrt.cli.options import option
from dragonrt.modes.question import Question
from dragonrt.node.process.composition import load_model
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.side import Side
from retrieval import Chunk, Embedder, Hit
from retrieval.chunking import chunk
from retrieval.questions import in_context
from scripts.bench.isolated_answers import IsolatedAnswers, Reading, in_shared_forwards
from scripts.bench.split_qa.score import contains, f1, refuses

from .adapter_articles import Pieces, squad
from .adapter_joined import Joined, bridge, link
from .adapter_notes import Told, list_of, note, rule, table
from .sample import UNKNOWN, Turn

_WORDS = 128  # of a chunk
_LONGEST = 40  # tokens of an answer
_KEY = re.compile(r"^.*?(?:: | at |, )")  # before the value, in the answer of a bridge


class Case(NamedTuple):
    """A question: the texts of each side, turns of which the last is asked, possible answers."""

    kind: str
    device: list[str]
    cloud: list[str]
    turns: list[Turn]
    answers: list[str]


def _cases(r: Random, n: int, corpus: Path) -> Iterator[Case]:
    """Yield cases of the generators: `n` of a kind, in forms that are kept for judging."""

    def stray() -> str:
        return note(r, unseen=True).text

    def asked(kind: str, told: Told) -> Iterator[Case]:
        device, cloud = r.sample([[told.text, stray()], [stray(), stray()]], 2)
        if told.known:
            turn = r.choice(told.known)
            yield Case(kind, device, cloud, [turn], [turn[1], turn[1].replace(" and ", ", ")])
        if told.missing and r.random() < 0.5:
            yield Case("nowhere", device, cloud, [(r.choice(told.missing), UNKNOWN)], [])

    def joined(kind: str, make: Callable[[Random, bool], Joined]) -> Iterator[Case]:
        made = make(r, True)
        turns, needed = max(made.asked, key=lambda each: (len(each[0]), len(each[1])))
        sides = [[each.text, stray()] for each in made.documents]
        answer = turns[-1][1]
        if len(needed) + len(turns) > 2 and len(sides) > 1:
            yield Case(kind, sides[0], sides[1], turns, [_KEY.sub("", answer)])

    makers: dict[str, Callable[[], Iterator[Case]]] = {
        "bridges": lambda: joined("bridges", bridge),
        "later turns": lambda: joined("later turns", link),
        "facts": lambda: asked("facts", note(r, unseen=True)),
        "tables": lambda: asked("tables", table(r)),
        "lists": lambda: asked("lists", list_of(r, unseen=True)),
        "yes or no": lambda: asked("yes or no", rule(r, unseen=True)),
    }
    for kind, make in makers.items():
        count = 0
        while count < n:
            for case in make():
                count += case.kind == kind
                yield case
    pieces = Pieces(squad(corpus / "squad.json", held_out=True), r, _WORDS)
    for _ in range(n):
        texts, questions = pieces.several(r, 4)
        for turns, needed in questions[:2] + questions[-1:]:
            kind = "articles" if needed else "nowhere in articles"
            yield Case(kind, texts[::2], texts[1::2], turns, [turns[-1][1]] if needed else [])


def _alone(file: Path, n: int) -> Iterator[Case]:
    """Yield questions about the chunk of a paragraph that has the answer."""
    every = [
        (f"{article['title'].replace('_', ' ')}\n{text[a:b]}", asked)
        for article in json.loads(file.read_text("utf-8"))
        for paragraph in article["paragraphs"]
        for text in [paragraph["text"]]
        for a, b in chunk(text, _WORDS)
        for asked in paragraph["questions"]
        if asked["answers"][0] in text[a:b]
    ]
    step = max(1, len(every) // n)
    for text, asked in every[::step][:n]:
        yield Case("alone", [text], [], [(asked["question"], "")], asked["answers"])


def _hits(embedder: Embedder, sought: str, texts: Sequence[str]) -> list[Hit]:
    digests = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in texts]
    found = [
        Hit(Chunk(digest, text, text.splitlines()[0], digest, 0, len(text)), score)
        for digest, text, score in zip(digests, texts, embedder.cosines(sought, texts), strict=True)
    ]
    return sorted(found, key=lambda hit: -hit.score)


def _answers(model: LanguageModel, cases: Sequence[Case], way: str) -> list[str]:
    embedder, documents = load_embedder(), dict[str, Document]()

    def reading(case: Case) -> Reading[dict[str, list[int]]]:
        history, prompt = tuple(case.turns[:-1]), case.turns[-1][0]
        asked = Question(history=history, max_tokens=_LONGEST, seed=1)
        sought = in_context(prompt, history)
        sides: dict[Side, list[str]] = {"device": case.device, "cloud": case.cloud}
        found = {side: _hits(embedder, sought, own) if own else [] for side, own in sides.items()}
        answers = IsolatedAnswers(model, asked, embedder, _documents=documents)
        return answers.reading(prompt, found, (way if case.cloud else "device alone",))

    done = iter(range(1, len(cases) + 1))
    with counting("answering") as show:
        given = in_shared_forwards(
            model, map(reading, cases), lambda: show(next(done), len(cases), "questions")
        )
    return [model.decode(next(iter(each.values()))).strip() for each in given]


def judge(
    corpus: Path,
    adapter: Path = bundled.ADAPTER_FILE,
    *,
    articles: Annotated[
        Path | None, option("Articles with questions (JSON) for the reader alone.", kind="FILE")
    ] = None,
    way: Annotated[str, option("How both sides decide.", default="mixture")] = "mixture",
    n: Annotated[int, option("Questions of a kind.", default="40", low=1)] = 40,
    alone: Annotated[int, option("Questions of the articles.", default="163", low=1)] = 163,
    out: Annotated[Path | None, option("Where every answer is written.", kind="FILE")] = None,
) -> None:
    """Print shares by kind: contains an answer, F1, refused.

    Args:
        corpus: of whose SQuAD articles the held-out ones are asked about.
        adapter: what `adapter-file` wrote; by default what ships.
    """
    path = merged(base_file(), adapter, threads=1)
    model = load_model(SideSettings("device", str(path), threads=1))
    cases = [*_cases(Random(7), n, corpus), *(_alone(articles, alone) if articles else ())]
    texts = _answers(model, cases, way)
    rows = [
        (
            case,
            text,
            contains(text, case.answers),
            f1(text, case.answers),
            refuses(text, model.prompt.template.refusal),
        )
        for case, text in zip(cases, texts, strict=True)
    ]
    for kind in dict.fromkeys(case.kind for case in cases):
        here = [scores for case, _, *scores in rows if case.kind == kind]
        means = [f"{sum(column) / len(here):.3f}" for column in zip(*here, strict=True)]
        print(f"{kind:20} {len(here):4}  contains {means[0]}  F1 {means[1]}  refused {means[2]}")
    if out:
        lines = (json.dumps([*case, text, *scores]) for case, text, *scores in rows)
        out.write_text("\n".join(lines) + "\n", "utf-8")
