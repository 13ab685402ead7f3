"""Answers under document isolation (SPEC 5): one side alone, all in one prompt, and the mixture.

The same model and the same retrieval at temperature 0. An answer stands in the device's documents,
in the cloud's, in both, needs a part of each, or is nowhere (docs/split-qa.md). Intervals are
bootstrapped by article.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated

from cyclopts import Parameter

from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.cli.loading import chosen_model
from dragonrt.cli.options import DAILY, derived, option, settings
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.process.composition import load_model
from dragonrt.node.process.local_side import sought
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.service.cloud_process import cloud_process
from dragonrt.service.prompts import bridge_of, parts_of
from dragonrt.service.text import JoinedText
from dragonrt.side import Side
from retrieval import Index, Retriever
from scripts.bench.isolated_answers import (
    PARTED,
    WAYS,
    Found,
    IsolatedAnswers,
    Reading,
    in_shared_forwards,
)
from scripts.bench.question_sets import NOTES, PLACES, KnownQuestion, World, chosen, worlds
from scripts.bench.split_qa.score import HOMES, MEASURES
from scripts.lab.arena import MeasuredAnswer
from scripts.lab.harness import benchmark, interval, progress
from scripts.lab.intervals import Interval, Row, distinct, grouped, having, paired, ratio
from scripts.lab.model_sides import LoadedSide, environment, run

OF_PAIRS = ("right", "wrong", "refused", "f1")
"""Measures that are shown of two processes."""
IN_PARTS = ", part by part"
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
    {Question: "Answers"}, only=("documents", "relevance_temperature", "reweight_every", "doubt")
)
class IsolatedQuestionOptions:
    """How every answer comes about."""


@dataclass(frozen=True, slots=True)
class FoundQuestion:
    """A question, what each side found for it, and how they find more."""

    known: KnownQuestion
    found: Found
    find: Callable[[Question], Found]


@benchmark(
    {"answer": "{place}", "form": "{form}", "way": "{way}", "asked": "{questions}"}
    | {name: interval(name) for name in (*MEASURES, "read")},
    {"compared": "{compared}", "": interval("value")},
    {
        "two processes, disclosing": "{level}",
        "texts as computed": "{same_texts} of {timed}",
        **{name: interval(name) for name in OF_PAIRS},
        "ms to first token": "{first_ms:.1f}",
        "ms per token": "{token_ms:.1f}",
        "bytes": "{bytes:.0f}",
    },
    note="One prompt holds what both sides found: what sending documents would give. Right: has "
    "every part of the answer; where it is nowhere, is a refusal. Wrong: neither right nor a "
    "refusal. F1 is SQuAD's. Bootstrap 95 % intervals by article. Read: the chunks that were read "
    "have the answer's words.",
)
def isolation(
    source: Annotated[
        str,
        Parameter(
            help="notes (short ones, in forms that no training saw), split-qa (its written worlds; "
            "one: written, forms), or a file: a set, articles with questions (SQuAD's JSON), or "
            "both sides' documents and questions."
        ),
    ] = NOTES,
    /,
    *,
    questions: Annotated[
        int | None, option("Number of questions, drawn by the seed. Default: all.", low=1)
    ] = None,
    seed: Annotated[int, option("Draws sides and questions.", default="2026", low=0)] = 2026,
    timed: Annotated[
        int, option("Questions to two processes at each level of --disclose.", default="6", low=0)
    ] = 6,
    side: IsolatedSideOptions | None = None,
    answers: IsolatedQuestionOptions | None = None,
) -> Iterator[Row]:
    """Ask the questions of the set each way; yield answers, shares, comparisons and times."""
    question = settings(Question, answers, seed=seed, max_tokens=LONGEST)
    own = settings(SideSettings, side, side="device")
    own = replace(own, model=chosen_model(own.model))
    return measured_set(own, question, source, questions, timed)


def measured_set(
    side: SideSettings,
    question: Question,
    source: str = NOTES,
    count: int | None = None,
    timed: int = 6,
) -> Iterator[Row]:
    """Yield the same for settings that are made; the question's seed draws the set."""
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as name:
        folder, model = Path(name), load_model(side)
        refusal = model.prompt.template.refusal
        by_world = list(_found_worlds(source, count, folder, side, question, refusal))
        found = [each for _, world in by_world for each in world]
        answering = IsolatedAnswers(
            model, question, load_embedder(side.embedder, library=side.llama_library)
        )
        done = iter(range(1, len(found) + 1))
        given = in_shared_forwards(
            model,
            (_answered(answering, each) for each in found),
            lambda: progress(f"asked {next(done)} of {len(found)} questions"),
        )
        rows = [
            _row(each, way, text, refusal)
            for each, texts in zip(found, given, strict=True)
            for way, text in texts.items()
        ]
        first, questions = by_world[0]
        some = questions[:: max(1, len(questions) // max(1, timed))][:timed]
        pairs = list(_pair(folder, first, side, question, some, answering)) if some else []
    yield from (*rows, *_summaries(rows), *_compared(rows), *pairs)


def _answered(answering: IsolatedAnswers, each: FoundQuestion) -> Reading[dict[str, str]]:
    """Answer a question whole and part by part: texts by way."""
    model, parts = answering.model, parts_of(each.known.question)
    tokens = yield from answering.reading(each.known.question, each.found)
    texts = {way: model.decode(said).strip() for way, said in tokens.items()}
    if len(parts) > 1:
        by_way = yield from answering.part_by_part(parts, each.find)
        for way, several in by_way.items():
            joined = JoinedText(parts, model.prompt.template.refusal)
            for said in several:
                joined.push(model.decode(said).strip())
                joined.next()
            joined.end()
            texts[way + IN_PARTS] = joined.text
        return texts
    bridge = bridge_of(each.known.question)
    for way in PARTED:
        in_two = (yield from _in_two(answering, each, way, *bridge)) if bridge else None
        texts[way + IN_PARTS] = in_two or texts[way]
    return texts


def _in_two(
    answering: IsolatedAnswers,
    each: FoundQuestion,
    way: str,
    asked: str,
    completed: Callable[[str], str],
) -> Reading[str]:
    """Answer a bridge as `Chat` does: its clause, and the question with the answer in its place."""
    joined = JoinedText(["", each.known.question], answering.model.prompt.template.refusal)
    for _ in range(2):
        by_way = yield from answering.part_by_part([asked], each.find, [way])
        joined.push(answering.model.decode(by_way[way][0]).strip())
        joined.next()
        asked = completed(joined.text) if joined.text else each.known.question
    joined.end()
    return joined.text


def _found_worlds(
    source: str, count: int | None, folder: Path, side: SideSettings, asked: Question, refusal: str
) -> Iterator[tuple[World, list[FoundQuestion]]]:
    """Yield the worlds of a set, about `count` questions of each or all, and what is found."""
    several = worlds(source, folder / "documents", asked.seed)
    share = min(1.0, (count or len(several[0].questions)) / len(several[0].questions))
    embedder = load_embedder(side.embedder, library=side.llama_library)
    for world in several:
        retrievers: dict[Side, Retriever] = {}
        sides: dict[Side, Sequence[Path]] = {"device": world.device, "cloud": world.cloud}
        for name, paths in sides.items():
            index = folder / "index" / name  # in place of another world's
            Index.update(index, paths, embedder, words=side.chunk_words)
            retrievers[name] = Retriever(Index.open(index), embedder, search=side.search)
        find = partial(_search, retrievers, refusal)
        yield (
            world,
            [
                FoundQuestion(known, find(replace(asked, prompt=known.question)), find)
                for known in chosen(world.questions, share, asked.seed)
            ],
        )


def _search(retrievers: Mapping[Side, Retriever], refusal: str, asked: Question) -> Found:
    words = sought(asked, refusal)
    return {name: each.retrieve(words, asked.documents) for name, each in retrievers.items()}


def _row(asked: FoundQuestion, way: str, text: str, refusal: str) -> Row:
    known, sides = asked.known, WAYS[way.removesuffix(IN_PARTS)].sides
    hits = [hit for side in sides for hit in asked.found[side]]
    return {
        "id": known.id,
        "question": known.question,
        "place": known.place,
        "form": known.form,
        "group": known.group,
        "answers": known.answers,
        "way": way,
        "text": text,
        **known.judged(text, refusal),
        "read": known.is_in([hit.chunk.text for hit in hits], [hit.chunk.source for hit in hits]),
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
    """Yield every measure by place, form and way; one side is either."""
    homes = {"one side": HOMES["one side"]} | {place: (place,) for place in PLACES}
    homes["any"] = PLACES
    for name, places in homes.items():
        placed = [row for row in rows if row["place"] in places]
        forms = distinct(placed, "form")
        for form in ("all", *forms) if len(forms) > 1 else forms:
            for way in distinct(placed, "way"):
                here = [row for row in having(placed, way=way) if form in ("all", row["form"])]
                measured = {each: share(here, each).to_json() for each in (*MEASURES, "read")}
                read = having(here, read=True)
                if read:
                    measured["read_and_refused"] = share(read, "refused").to_json()
                yield {"place": name, "form": form, "way": way, "questions": len(here), **measured}


def _compared(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the mixture against one prompt: paired differences, and the ratio of F1."""
    for home in ("one side", "needs both"):
        here = [row for row in rows if row["place"] in HOMES[home]]
        mixed, others = having(here, way="mixture"), having(here, way="one prompt")
        pairs = list(zip(mixed, others, strict=False))
        for measure in ("right", "f1") if pairs else ():
            more = [
                {"group": a["group"], "more": float(a[measure]) - float(b[measure])}
                for a, b in pairs
            ]
            value = share(more, "more").to_json()
            yield {"compared": f"{home}: mixture - one prompt, {measure}", "value": value}
        each = [{"group": a["group"], "mixed": a["f1"], "other": b["f1"]} for a, b in pairs]
        if sum(pair["other"] for pair in each) > 0:
            value = paired(ratio, *by_group(each, "mixed", "other")).to_json()
            yield {"compared": f"{home}: mixture / one prompt, f1", "value": value}


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
    options = [f"--documents={each}" for each in world.cloud]
    prompts = [each.known.question for each in sample]
    # A cloud answers while a large corpus is still being indexed: these answers need all of it.
    Index.update(folder / "pair-cloud", world.cloud, answers.embedder, words=side.chunk_words)
    with cloud_process(*options, model=side.model, within=environment(values)) as cloud:
        own = replace(side, documents=world.device, index=folder / "pair-device")
        loaded = LoadedSide.opened(own, answers.model)
        port = cloud.wait_ready()

        async def ask(level: Disclosure) -> list[MeasuredAnswer]:
            async with loaded.connected(port) as arena:
                return await arena.ask_each(prompts, question, DragonSettings(disclose=level))

        replies = {level: run(ask(level), virtual=False) for level in Disclosure}
    model = answers.model
    mixed = in_shared_forwards(
        model, (answers.reading(each.known.question, each.found, ("mixture",)) for each in sample)
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
            **{name: share(rows, name).to_json() for name in OF_PAIRS},
            "first_ms": 1e3 * median(reply.first_s for reply in given),
            "token_ms": 1e3 * median(later) if later else None,
            "bytes": median(reply.wire_bytes for reply in given),
        }
