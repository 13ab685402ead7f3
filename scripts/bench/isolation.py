"""Answers under document isolation (SPEC 5): one side alone, all in one prompt, and the mixture.

The same model and the same retrieval at temperature 0. An answer stands in the device's documents,
in the cloud's, in both or in none. Intervals are bootstrapped by article.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from dragonrt.backends.batch import read_alone
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.process import load_model
from dragonrt.node.side_settings import SideSettings
from dragonrt.settings import flat
from retrieval import Embedder, Hit, Index, Retriever
from retrieval.files import create
from scripts.bench.answer_scores import contains, f1, refuses
from scripts.bench.isolated_answers import WAYS, IsolatedAnswers, Way, in_shared_forwards
from scripts.bench.question_sets import PLACES, KnownQuestion, Place, World, chosen, worlds
from scripts.bench.report import bench_table, print_report
from scripts.papers.arena import Given
from scripts.papers.intervals import Interval, Row, grouped, having, paired
from scripts.papers.model_sides import run
from scripts.papers.sample_sides import LoadedSide

NOTE = (
    "One prompt holds what both sides found: what sending documents would give. Contains and F1 "
    "are SQuAD's, with bootstrap 95 % intervals by article. Read: a chunk that was read has the "
    "answer's words. Where the answer is nowhere, all that is not refused is wrong."
)
MEASURES = ("contains", "f1", "refused", "read")
LONGEST = 40
"""Tokens of an answer."""
SHARED = ("model", "on", "dtype", "adapter", "prompt", "embedder", "chunk_words", "search")
"""Settings that both sides have in common."""
TIMED = 6
"""Questions asked of two processes, one at a time, for times and bytes."""


@dataclass(frozen=True, slots=True)
class FoundQuestion:
    """A question and what each side found for it."""

    known: KnownQuestion
    device: tuple[Hit, ...]
    cloud: tuple[Hit, ...]

    def hits(self, way: Way) -> tuple[Hit, ...]:
        """Return the chunks that are read this way."""
        device = () if way == "cloud alone" else self.device
        return device if way == "device alone" else device + self.cloud


def bench_isolation(
    *,
    output: Console,
    messages: Console,
    side: SideSettings,
    question: Question,
    file: Path | None = None,
    count: int | None = None,
    rows_file: Path | None = None,
) -> None:
    """Ask `count` questions (all without it) of the set in `file` each way and report.

    `side` names the model and how documents are cut and found; `question` has the settings of all
    answers, and its seed draws the set. Writes every answer to `rows_file`.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dragonrt-")))
        status = stack.enter_context(messages.status("loading the model"))
        model = load_model(side)
        status.update("indexing both sides' documents")
        several = worlds(file, folder / "documents", question.seed)
        share = min(1.0, (count or len(several[0].questions)) / len(several[0].questions))
        embedder = Embedder.load(side.embedder)
        found: list[FoundQuestion] = []
        for world in several:
            asked = chosen(world.questions, share, question.seed)
            found += _found(world, asked, folder / "index", embedder, side, question)
        answers, done = IsolatedAnswers(model, question), 0

        def progress() -> None:
            nonlocal done
            done += 1
            status.update(f"asked {done} of {len(found)} questions")

        given = in_shared_forwards(
            (answers.reading(each.known.question, each.device, each.cloud) for each in found),
            progress,
        )
        rows = [
            _row(each, way, model.decode(tokens[way]).strip(), model.prompt.template.refusal)
            for each, tokens in zip(found, given, strict=True)
            for way in WAYS
        ]
        status.update("asking two processes")
        sample = found[:TIMED]
        pair = _pair(folder, several[0], side, replace(question, prompt=""), sample, answers)
        costs = [*_alone(answers, sample), pair]
    results = [*_summaries(rows), *_compared(rows), *costs]
    if rows_file is not None:
        settings = flat(question) | {"model": model.name, "fingerprint": model.fingerprint}
        written = {"settings": settings, "results": results, "rows": rows}
        with create(rows_file) as out:
            out.write(json.dumps(written, default=str, indent=1).encode())
    _report(output, results, question.seed)


def _found(
    world: World,
    asked: Sequence[KnownQuestion],
    index: Path,
    embedder: Embedder,
    side: SideSettings,
    question: Question,
) -> Iterator[FoundQuestion]:
    """Index the world's documents, in place of another's, and look for what is asked."""
    retrievers = []
    for name, documents in (("device", world.device), ("cloud", world.cloud)):
        Index.update(index / name, documents, embedder, words=side.chunk_words, parser=side.parser)
        retrievers.append(Retriever(Index.open(index / name), embedder, search=side.search))
    for known in asked:
        device, cloud = (
            tuple(each.retrieve(known.question, question.documents)) for each in retrievers
        )
        yield FoundQuestion(known, device, cloud)


def _row(asked: FoundQuestion, way: Way, text: str, refusal: str) -> Row:
    known = asked.known
    return {
        "question": known.question,
        "place": known.place,
        "group": known.group,
        "answers": known.answers,
        "way": way,
        "text": text,
        "contains": contains(text, known.answers),
        "f1": f1(text, known.answers),
        "refused": refuses(text, refusal),
        "read": any(contains(hit.chunk.text, known.answers) for hit in asked.hits(way)),
        "scores": [round(hit.score, 4) for hit in asked.hits(way)],
    }


def by_group(rows: Sequence[Row], measure: str) -> tuple[list[float], list[float]]:
    """Return each group's sum of a measure and its number of rows: what `paired` resamples."""
    groups = grouped(rows, "group").values()
    return [float(sum(r[measure] for r in group)) for group in groups], [
        *map(float, map(len, groups))
    ]


def _ratio(
    sums: NDArray[np.float64], counts: NDArray[np.float64], axis: int = 0
) -> NDArray[np.float64]:
    """Return the mean of the resampled groups' members; 0 where the divisor is 0."""
    above, below = sums.sum(axis=axis), counts.sum(axis=axis)
    return np.asarray(np.divide(above, below, out=np.zeros_like(above), where=below > 0))


def share(rows: Sequence[Row], measure: str) -> Interval:
    """Estimate the mean of a measure over the rows, with an interval by group."""
    return paired(_ratio, *by_group(rows, measure))


def _summaries(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Every measure by place and way; first of what stands on one side, whichever it is."""
    homes: tuple[tuple[str, tuple[Place, ...]], ...] = (
        ("one side", ("device", "cloud")),
        *((place, (place,)) for place in PLACES),
    )
    for name, places in homes:
        for way in WAYS:
            here = [row for row in having(rows, way=way) if row["place"] in places]
            if not here:
                continue
            measured = {each: share(here, each).to_json() for each in MEASURES}
            read = having(here, read=True)
            refused = {"read and refused": share(read, "refused").to_json()} if read else {}
            yield {"answer on": name, "way": way, "questions": len(here), **measured, **refused}


def _compared(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The mixture against all in one prompt: paired differences, and the ratio of their F1."""
    home = [row for row in rows if row["place"] in ("device", "cloud")]
    pairs = list(zip(having(home, way="mixture"), having(home, way="one prompt"), strict=True))
    for measure in ("contains", "f1"):
        differences = [
            {"group": mixed["group"], "more": float(mixed[measure]) - float(joined[measure])}
            for mixed, joined in pairs
        ]
        difference = share(differences, "more").to_json()
        yield {"mixture - one prompt": measure, "difference": difference}
    each = [{"group": a["group"], "mixed": a["f1"], "joined": b["f1"]} for a, b in pairs]
    mixed, _ = by_group(each, "mixed")
    joined, _ = by_group(each, "joined")
    yield {"mixture / one prompt": "f1", "ratio": paired(_ratio, mixed, joined).to_json()}


def _alone(answers: IsolatedAnswers, sample: Sequence[FoundQuestion]) -> Iterator[dict[str, Any]]:
    """Times of one process without another, and the bytes of sending the cloud's documents."""
    for way in WAYS[:-1]:
        first, later, sent = [], [], []
        for each in sample:
            seconds, tokens = {}, 0
            for most in (1, answers.asked.max_tokens):
                asking = replace(answers, asked=replace(answers.asked, max_tokens=most))
                start = time.perf_counter()
                said = read_alone(
                    asking.reading(each.known.question, each.device, each.cloud, (way,))
                )
                seconds[most], tokens = time.perf_counter() - start, len(said[way])
            first.append(seconds[1])
            if tokens > 1:
                later.append((seconds[answers.asked.max_tokens] - seconds[1]) / tokens)
            texts = [hit.chunk.text for hit in each.cloud] if way == "one prompt" else []
            sent.append(sum(len(text.encode()) for text in texts))
        yield _costs(way, first, later, sent)


def _pair(
    folder: Path,
    world: World,
    side: SideSettings,
    question: Question,
    sample: Sequence[FoundQuestion],
    answers: IsolatedAnswers,
) -> dict[str, Any]:
    """Times and bytes of two processes over the home world, and how many texts are as computed."""
    values = {name: getattr(side, name) for name in SHARED} | {"index": folder / "pair-cloud"}
    options = [
        f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value is not None
    ]
    options += [f"--documents={each}" for each in world.cloud]
    with cloud_process(*options) as cloud:
        settings = replace(side, documents=world.device, index=folder / "pair-device")
        loaded = LoadedSide.opened(settings, answers.model)
        port = cloud.wait_ready()

        async def ask() -> list[Given]:
            async with loaded.connected(port) as arena:
                prompts = [each.known.question for each in sample]
                return await arena.ask_each(prompts, question, DragonSettings())

        replies = run(ask(), virtual=False)
    computed = (
        read_alone(answers.reading(e.known.question, e.device, e.cloud, ("mixture",)))["mixture"]
        for e in sample
    )
    stops = answers.model.answer_stops
    texts = ([token for token in reply.tokens if token not in stops] for reply in replies)
    same = sum(a == b for a, b in zip(texts, computed, strict=True))
    first = [reply.first_s for reply in replies]
    later = [reply.between_s for reply in replies if reply.between_s is not None]
    return _costs("mixture", first, later, [r.wire_bytes for r in replies]) | {
        "texts as computed": [same, len(sample)]
    }


def _costs(
    way: Way, first_s: Sequence[float], later_s: Sequence[float], sent: Sequence[int]
) -> dict[str, Any]:
    return {
        "times of": way,
        "ms to first token": round(1e3 * median(first_s), 1),
        "ms per token": round(1e3 * median(later_s), 1) if later_s else None,
        "bytes": round(median(sent)),
    }


def _report(output: Console, results: Sequence[dict[str, Any]], seed: int) -> None:
    table = bench_table("answer on", "way", "asked", "contains", "F1", "refused", "read")
    for each in results:
        if "answer on" in each:
            shares = [_cell(each[measure]) for measure in MEASURES]
            table.add_row(each["answer on"], each["way"], str(each["questions"]), *shares)
    output.print(table)
    for each in results:
        if "difference" in each or "ratio" in each:
            name, measure, *_ = each.items()
            output.print(f"{name[0]}, {name[1]}: {_cell(measure[1])}", highlight=False)
    times = bench_table("times of", "ms to first token", "ms per token", "bytes")
    for each in results:
        if "times of" in each:
            cells = (each[name] for name in ("ms to first token", "ms per token", "bytes"))
            times.add_row(each["times of"], *("-" if cell is None else f"{cell}" for cell in cells))
    print_report(output, "isolation", times, results, seed=seed, note=NOTE)


def _cell(interval: dict[str, Any]) -> str:
    return f"{interval['mean']:.2f} ({interval['low']:.2f}-{interval['high']:.2f})"
