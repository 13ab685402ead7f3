"""Answers under document isolation (SPEC 5): one side alone, all in one prompt, and the mixture.

The same model and the same retrieval at temperature 0. An answer stands in the device's documents,
in the cloud's, in both or in none. Intervals are bootstrapped by article.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated

from cyclopts import Parameter

from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.cli.loading import chosen_model
from dragonrt.cli.options import DAILY, derived, option, settings
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.process import load_model
from dragonrt.node.side_settings import SideSettings
from dragonrt.privacy.disclosure import Disclosure
from retrieval import Hit, Index, Retriever
from scripts.bench.harness import benchmark, progress
from scripts.bench.isolated_answers import WAYS, IsolatedAnswers, in_shared_forwards
from scripts.bench.question_sets import (
    PLACES,
    KnownQuestion,
    World,
    chosen,
    contains,
    f1,
    refuses,
    worlds,
)
from scripts.papers.arena import Given
from scripts.papers.intervals import Interval, Row, grouped, having, paired, ratio
from scripts.papers.model_sides import run
from scripts.papers.sample_sides import LoadedSide, flags

MEASURES = ("contains", "f1", "refused", "read")
LONGEST = 40
"""Tokens of an answer."""
SHARED = (
    *("model", "on", "dtype", "llama_library", "adapter", "prompt"),
    *("embedder", "chunk_words", "search"),
)
"""Settings that both sides have in common."""


@derived({SideSettings: DAILY}, only=(*SHARED, "threads"))
class IsolatedSideOptions:
    """What both sides answer with, and how documents are cut and found."""


@derived(
    {Question: "Answers"},
    only=("documents", "relevance_temperature", "reweight_every", "doubt"),
)
class IsolatedQuestionOptions:
    """How every answer comes about."""


@dataclass(frozen=True, slots=True)
class FoundQuestion:
    """A question and what each side found for it."""

    known: KnownQuestion
    device: tuple[Hit, ...]
    cloud: tuple[Hit, ...]

    def hits(self, way: str) -> tuple[Hit, ...]:
        """Return the chunks that are read this way."""
        device = () if way == "cloud alone" else self.device
        return device if way == "device alone" else device + self.cloud


def _shown(name: str, value: str = "mean") -> str:
    return f"{{{name}[{value}]:.2f}} ({{{name}[low]:.2f}}-{{{name}[high]:.2f}})"


@benchmark(
    {"answer on": "{place}", "way": "{way}", "asked": "{questions}"}
    | {name: _shown(name) for name in MEASURES},
    {"compared": "{compared}", "": _shown("value")},
    {
        "two processes, disclosing": "{level}",
        "texts as computed": "{same_texts} of {timed}",
        "contains": _shown("contains"),
        "f1": _shown("f1"),
        "ms to first token": "{first_ms:.1f}",
        "ms per token": "{token_ms:.1f}",
        "bytes": "{bytes:.0f}",
    },
    note="One prompt holds what both sides found: what sending documents would give. Contains and "
    "F1 are SQuAD's, with bootstrap 95 % intervals by article. Read: a chunk that was read has the "
    "answer's words. Where the answer is nowhere, all that is not refused is wrong.",
)
def isolation(
    file: Annotated[
        Path | None,
        Parameter(
            help="Articles with questions (JSON, as SQuAD's), or both sides' documents and "
            "questions; else notes and articles in forms that no training saw.",
            show_default=False,
        ),
    ] = None,
    /,
    *,
    questions: Annotated[
        int | None, option("So many questions, drawn by the seed; else all.", low=1)
    ] = None,
    seed: Annotated[int, option("Draws sides and questions.", default="2026", low=0)] = 2026,
    timed: Annotated[
        int, option("Questions to two processes at each level of --disclose.", default="6", low=0)
    ] = 6,
    side: IsolatedSideOptions | None = None,
    answers: IsolatedQuestionOptions | None = None,
) -> Iterator[Row]:
    """Ask the questions of the set each way; yield answers, shares, comparisons and times."""
    own = settings(SideSettings, side, side="device")
    question = settings(Question, answers, seed=seed, max_tokens=LONGEST)
    return measured_set(
        replace(own, model=chosen_model(own.model)), question, file, questions, timed
    )


def measured_set(
    side: SideSettings,
    question: Question,
    file: Path | None = None,
    count: int | None = None,
    timed: int = 6,
) -> Iterator[Row]:
    """Yield the same for settings that are made; the question's seed draws the set."""
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as name:
        folder, model = Path(name), load_model(side)
        several = worlds(file, folder / "documents", question.seed)
        share = min(1.0, (count or len(several[0].questions)) / len(several[0].questions))
        by_world = [
            list(_found(world, share, folder / "index", side, question)) for world in several
        ]
        found = [each for world in by_world for each in world]
        answering = IsolatedAnswers(
            model, question, load_embedder(side.embedder, library=side.llama_library)
        )
        done = iter(range(1, len(found) + 1))
        given = in_shared_forwards(
            model,
            (answering.reading(each.known.question, each.device, each.cloud) for each in found),
            lambda: progress(f"asked {next(done)} of {len(found)} questions"),
        )
        rows = [
            _row(each, way, model.decode(tokens[way]).strip(), model.prompt.template.refusal)
            for each, tokens in zip(found, given, strict=True)
            for way in WAYS
        ]
        some = by_world[0][:: max(1, len(by_world[0]) // max(1, timed))][:timed]
        pairs = list(_pair(folder, several[0], side, question, some, answering)) if some else []
    yield from (*rows, *_summaries(rows), *_compared(rows), *pairs)


def _found(
    world: World, share: float, index: Path, side: SideSettings, question: Question
) -> Iterator[FoundQuestion]:
    """Index the world's documents, in place of another's, and search for what is asked."""
    embedder, retrievers = load_embedder(side.embedder, library=side.llama_library), []
    for name, documents in (("device", world.device), ("cloud", world.cloud)):
        Index.update(index / name, documents, embedder, words=side.chunk_words)
        retrievers.append(Retriever(Index.open(index / name), embedder, search=side.search))
    for known in chosen(world.questions, share, question.seed):
        device, cloud = (
            tuple(each.retrieve(known.question, question.documents)) for each in retrievers
        )
        yield FoundQuestion(known, device, cloud)


def _row(asked: FoundQuestion, way: str, text: str, refusal: str) -> Row:
    known, hits = asked.known, asked.hits(way)
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
        "read": any(contains(hit.chunk.text, known.answers) for hit in hits),
        "scores": [round(hit.score, 4) for hit in hits],
    }


def by_group(rows: Sequence[Row], *measures: str) -> list[list[float]]:
    """Return each group's sums of measures: what is resampled."""
    groups = grouped(rows, "group").values()
    return [[float(sum(row[name] for row in group)) for group in groups] for name in measures]


def share(rows: Sequence[Row], measure: str) -> Interval:
    """Estimate the mean of a measure over the rows, with an interval by group."""
    return paired(ratio, *by_group([row | {"one": 1} for row in rows], measure, "one"))


def _summaries(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield every measure by place and way; first of what stands on one side, whichever it is."""
    homes: dict[str, tuple[str, ...]] = {
        "one side": ("device", "cloud"),
        **{place: (place,) for place in PLACES},
    }
    for name, places in homes.items():
        for way in WAYS:
            here = [row for row in having(rows, way=way) if row["place"] in places]
            if not here:
                continue
            measured = {each: share(here, each).to_json() for each in MEASURES}
            read = having(here, read=True)
            refused = {"read_and_refused": share(read, "refused").to_json()} if read else {}
            yield {"place": name, "way": way, "questions": len(here), **measured, **refused}


def _compared(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the mixture against all in one prompt: paired differences, and the ratio of F1."""
    home = [row for row in rows if row["place"] in ("device", "cloud")]
    pairs = list(zip(having(home, way="mixture"), having(home, way="one prompt"), strict=True))
    for measure in ("contains", "f1"):
        more = [
            {"group": a["group"], "more": float(a[measure]) - float(b[measure])} for a, b in pairs
        ]
        value = share(more, "more").to_json()
        yield {"compared": f"mixture - one prompt, {measure}", "value": value}
    each = [{"group": a["group"], "mixed": a["f1"], "joined": b["f1"]} for a, b in pairs]
    value = paired(ratio, *by_group(each, "mixed", "joined")).to_json()
    yield {"compared": "mixture / one prompt, f1", "value": value}


def _pair(
    folder: Path,
    world: World,
    side: SideSettings,
    question: Question,
    sample: Sequence[FoundQuestion],
    answers: IsolatedAnswers,
) -> Iterator[Row]:
    """Yield what two processes answer at each level of disclosure, one question at a time."""
    values = {name: getattr(side, name) for name in SHARED} | {"index": folder / "pair-cloud"}
    options = flags(values) + [f"--documents={each}" for each in world.cloud]
    prompts = [each.known.question for each in sample]
    # A cloud answers while a large corpus is still being indexed: these answers need all of it.
    Index.update(folder / "pair-cloud", world.cloud, answers.embedder, words=side.chunk_words)
    with cloud_process(*options) as cloud:
        own = replace(side, documents=world.device, index=folder / "pair-device")
        loaded = LoadedSide.opened(own, answers.model)
        port = cloud.wait_ready()

        async def ask(level: Disclosure) -> list[Given]:
            async with loaded.connected(port) as arena:
                return await arena.ask_each(prompts, question, DragonSettings(disclose=level))

        replies = {level: run(ask(level), virtual=False) for level in Disclosure}
    model = answers.model
    mixed = in_shared_forwards(
        model,
        (
            answers.reading(each.known.question, each.device, each.cloud, ("mixture",))
            for each in sample
        ),
    )
    for level, given in replies.items():
        tokens = [
            [token for token in each.tokens if token not in model.answer_stops] for each in given
        ]
        texts = [model.decode(each).strip() for each in tokens]
        refusal = model.prompt.template.refusal
        rows = [_row(a, "mixture", b, refusal) for a, b in zip(sample, texts, strict=True)]
        later = [reply.between_s for reply in given if reply.between_s is not None]
        yield {
            "level": level,
            "same_texts": sum(a == b["mixture"] for a, b in zip(tokens, mixed, strict=True)),
            "timed": len(sample),
            **{name: share(rows, name).to_json() for name in ("contains", "f1")},
            "first_ms": 1e3 * median(reply.first_s for reply in given),
            "token_ms": 1e3 * median(later) if later else None,
            "bytes": median(reply.wire_bytes for reply in given),
        }
