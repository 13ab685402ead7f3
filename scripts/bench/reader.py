"""What a reader is to be run with: documents a side, doubt, and when it refuses.

Every question is answered without its refusal, and the refusal's odds are measured beside: one run
shows what any threshold would refuse. All settings weigh the same rows, so each text is read once.
"""

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Annotated

import numpy as np
from cyclopts import Parameter
from numpy.typing import NDArray

from dragonrt.backends.backend import RowLogits
from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.backends.mixture import SUREST, RowWeights
from dragonrt.backends.scheduler import run_alone
from dragonrt.cli.options import option, settings
from dragonrt.errors import DragonError
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.node.process.composition import load_model
from dragonrt.side import Side
from retrieval import Hit
from retrieval.index import near
from scripts.bench.isolated_answers import IsolatedAnswers, Reading, in_shared_forwards
from scripts.bench.isolation import (
    LONGEST,
    FoundQuestion,
    IsolatedQuestionOptions,
    IsolatedSideOptions,
    chosen_side,
    found_worlds,
)
from scripts.bench.question_sets import NOTES
from scripts.lab.harness import benchmark, progress
from scripts.lab.intervals import Row, distinct, having

REFUSED = (0.85, 0.9, 0.95)
"""Shares of what is nowhere that are to be refused."""
RULES = ("first token", "whole answer", "surest row")
"""Whose odds: of the refusal against the best other first token, against the whole answer without
it, and of the row that refuses least."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How many documents a side reads, a further one within the `gap` (`retrieval.near`).

    They are weighed by a relevance `temperature` and the `doubt`.
    """

    documents: int
    gap: float
    temperature: float
    doubt: float

    @property
    def name(self) -> str:
        """How the table names the documents."""
        return f"{self.documents}" + (f" within {self.gap:g}" if self.gap < math.inf else "")

    def read(self, hits: Sequence[Hit]) -> Sequence[Hit]:
        """Return which of a side's chunks are read."""
        return near(hits[: self.documents], self.gap)


@dataclass(frozen=True, slots=True)
class Considered:
    """An answer without the refusal; the logarithm of the refusal's odds by each of RULES."""

    tokens: list[int]
    odds: tuple[float, ...]


_SETTING = {
    "set": "{set}",
    "documents": "{documents}",
    "temperature": "{temperature:g}",
    "doubt": "{doubt:g}",
}


def _at(column: str) -> str:
    return " / ".join(f"{{at[{share}][{column}]:.2f}}" for share in REFUSED)


@benchmark(
    _SETTING
    | {"rows": "{rows:.2f}", "asked": "{asked}", "right": "{right:.3f}", "f1": "{f1:.3f}"}
    | {"may refuse: right": "{usual[right]:.3f}", "f1 ": "{usual[f1]:.3f}"}
    | {"found, refused": "{usual[found]:.3f}", "nowhere, refused": "{usual[nowhere]:.3f}"},
    _SETTING
    | {"odds": "{rule}", "above": _at("threshold"), "found, refused": _at("found")}
    | {"right, refused": _at("right_refused"), "right": _at("right")},
    {"documents": "{documents}", "timed": "{timed}", "ms to first token": "{first_ms:.1f}"}
    | {"ms per token": "{token_ms:.2f}"},
    note="Right and F1: of questions that one side or both sides hold. Found: the chunks that were "
    "read have the answer's words. Within G: a second document only if its cosine is at most G "
    "below the first's. Above: the odds above which 0.85 / 0.90 / 0.95 of what is nowhere is "
    "refused. Times are of one side alone, whose documents were read before.",
)
def reader(
    *sources: Annotated[
        str, Parameter(help="Sets, as of isolation. Default: notes.", show_default=False)
    ],
    questions: Annotated[
        int | None, option("About so many of each world; else all.", low=1)
    ] = None,
    gaps: tuple[float, ...] = (0.05,),
    temperatures: tuple[float, ...] = (0.05, 0.1, 0.2),
    doubts: tuple[float, ...] = (1.0,),
    timed: Annotated[int, option("Questions that are timed.", default="20", low=0)] = 20,
    seed: Annotated[int, option("Draws sides and questions.", default="2026", low=0)] = 2026,
    side: IsolatedSideOptions | None = None,
    answers: IsolatedQuestionOptions | None = None,
) -> Iterator[Row]:
    """Ask the questions at each setting; yield answers, shares, the curve of refusal, times."""
    own = chosen_side(side)
    question = settings(Question, answers, seed=seed, max_tokens=LONGEST)
    model = load_model(own)
    if model.refusal is None:
        raise DragonError(f"{model.name} has no refusal: name one in its prompt (docs/pairs.md)")
    embedder = load_embedder(own.embedder, library=own.llama_library)
    answering = IsolatedAnswers(model, question, embedder)
    read = [(1, math.inf), *((2, gap) for gap in gaps), (2, math.inf)]
    weighed = [*product(temperatures, doubts)]
    considered = [Setting(*each, *weights) for each, weights in product(read, weighed)]
    rows, found = list[Row](), list[FoundQuestion]()
    for source in sources or (NOTES,):
        with tempfile.TemporaryDirectory(prefix="dragonrt-") as name:
            refusal = model.prompt.template.refusal
            worlds = found_worlds(source, questions, Path(name), own, question, refusal)
        found = [each for _, world in worlds for each in world if each.known.place != "needs both"]
        rows += [{"set": source} | row for row in _rows(answering, found, considered)]
    yield from rows
    names = distinct(rows, "set")
    for name in (*names, "all")[: len(names) + (len(names) > 1)]:
        yield from _chosen([row | {"set": name} for row in rows if name in (row["set"], "all")])
    for setting in considered[:: len(weighed)] if timed else ():
        yield {"documents": setting.name} | _times(answering, setting, found[:timed])


def _rows(
    answers: IsolatedAnswers, found: Sequence[FoundQuestion], considered: Sequence[Setting]
) -> Iterator[Row]:
    done = iter(range(1, len(found) + 1))
    given = in_shared_forwards(
        answers.model,
        (consider(answers, each, considered) for each in found),
        lambda: progress(f"considered {next(done)} of {len(found)} questions"),
    )
    for each, by_setting in zip(found, given, strict=True):
        for setting, said in by_setting.items():
            yield _row(answers, each, setting, said)


def consider(
    answers: IsolatedAnswers,
    asked: FoundQuestion,
    considered: Sequence[Setting],
    sides: Sequence[Side] = ("device", "cloud"),
) -> Reading[dict[Setting, Considered]]:
    """Answer by each setting's mixture, at temperature 0, without the refusal's first token."""
    question = replace(answers.asked, prompt=asked.known.question)
    hits, refusal = [asked.found[side] for side in sides], answers.model.refusal or 0
    caches, known = [], dict[int, list[RowLogits]]()
    for each in hits:
        caches.append((yield from answers.side(question, each)))
    found: dict[Setting, Considered] = {}
    for setting in considered:
        line, likely = TokenPrefix(start_hash(question.seed)), 0.0
        while len(line) < question.max_tokens:
            if line.hash not in known:
                known[line.hash] = []
                for cache in caches:
                    said = yield partial(cache.request, line.tokens, line.hashes, len(line))
                    known[line.hash].append(said[0].rows.copy())
            rows = known[line.hash]
            if not line:
                refused = [each.probability(refusal).clip(1 - SUREST, SUREST) for each in rows]
                weights = _weights(setting, hits, refused)
            mixed = (each.mixed(part) for each, part in zip(rows, weights, strict=True))
            p = np.sum([*mixed], axis=0, dtype=float).clip(1e-30)
            if not line:
                surest = min(
                    each[part > -math.inf].min(initial=SUREST)
                    for each, part in zip(refused, weights, strict=True)
                )
                refuses, p[refusal] = math.log(p[refusal]), 0.0
                first, row = refuses - math.log(p.max()), math.log(surest / (1 - surest))
            token = int(p.argmax())
            likely += math.log(p[token])
            if token in answers.model.answer_stops:
                break
            line.append(token)
        found[setting] = Considered(line.tokens, (first, refuses - likely, row))
    return found


def _weights(
    setting: Setting,
    hits: Sequence[Sequence[Hit]],
    refused: Sequence[NDArray[np.float64]],
) -> list[NDArray[np.float32]]:
    """Return the logarithms of each side's rows' weights [rows]; -inf for what is not read."""
    relevances = []
    for side, doubted in zip(hits, refused, strict=True):
        read = setting.read(side)
        scores = np.array([hit.score if hit in read else -math.inf for hit in side] or [0.0])
        relevances.append(scores / setting.temperature + setting.doubt * np.log1p(-doubted))
    ends = np.cumsum([len(each) for each in relevances])[:-1]
    return np.split(RowWeights(np.concatenate(relevances)).logs, ends)


def _row(answers: IsolatedAnswers, asked: FoundQuestion, setting: Setting, said: Considered) -> Row:
    known, text = asked.known, answers.model.decode(said.tokens).strip()
    sides = [setting.read(hits) for hits in asked.found.values()]
    chunks = [hit.chunk for hits in sides for hit in hits]
    return {
        "documents": setting.name,
        "temperature": setting.temperature,
        "doubt": setting.doubt,
        "id": known.id,
        "place": known.place,
        "text": text,
        **known.judged(text),
        "read": known.is_in([each.text for each in chunks], [each.source for each in chunks]),
        "rows": fmean(max(1, len(hits)) for hits in sides),
        "odds": dict(zip(RULES, said.odds, strict=True)),
    }


def _chosen(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield what each setting gives as decoded, and at thresholds that refuse enough."""
    columns = ("documents", "temperature", "doubt")
    for values in product(*(distinct(rows, column) for column in columns)):
        setting = dict(zip(columns, values, strict=True))
        here = having(rows, **setting)
        nowhere = having(here, place="nowhere")
        known = [row for row in here if row["place"] != "nowhere"]
        named = {"set": here[0]["set"], **setting}
        measured = {each: _mean(known, each) for each in ("right", "f1")} | {"asked": len(here)}
        usual = refusing(known, nowhere, RULES[0], 0.0)
        yield named | measured | {"rows": _mean(here, "rows"), "usual": usual}
        for rule in RULES if nowhere else ():
            odds, at = sorted(row["odds"][rule] for row in nowhere), dict[str, Row]()
            for share in REFUSED:  # just so many of them are above the threshold
                threshold = odds[math.floor((1 - share) * len(odds))] - 1e-9
                at[str(share)] = refusing(known, nowhere, rule, threshold)
            yield named | {"rule": rule, "at": at}


def refusing(known: Sequence[Row], nowhere: Sequence[Row], rule: str, threshold: float) -> Row:
    """Return what is refused, right and F1 if the odds of a refusal must be above a threshold."""
    judged = [row | {"refused": row["odds"][rule] > threshold} for row in known]
    kept = [
        row | {each: row[each] * (1 - row["refused"]) for each in ("right", "f1")} for row in judged
    ]
    return {
        "threshold": threshold,
        "nowhere": _mean(
            [{"refused": row["odds"][rule] > threshold} for row in nowhere], "refused"
        ),
        "found": _mean(having(judged, read=True), "refused"),
        "right_refused": _mean(having(judged, right=True), "refused"),
        **{each: _mean(kept, each) for each in ("right", "f1")},
    }


def _mean(rows: Sequence[Row], column: str) -> float:
    return fmean(row[column] for row in rows) if rows else math.nan


def _times(answers: IsolatedAnswers, setting: Setting, found: Sequence[FoundQuestion]) -> Row:
    """Return one side's median times, to the first token and of each later one."""
    first, later = list[float](), list[float]()
    for each in found:
        asked = replace(each, found={"device": setting.read(each.found["device"])})
        reading, said, times = consider(answers, asked, [setting], ("device",)), None, [0.0]
        with suppress(StopIteration):
            while True:
                make, start = reading.send(said), perf_counter()
                said = run_alone(make)
                times.append(1e3 * (perf_counter() - start))
        # The prediction behind the question is there with it: no forward of its own.
        first.append(times[1] + times[2])
        later += times[3:]
    times_ms = {"first_ms": median(first), "token_ms": median(later) if later else None}
    return {"timed": len(found), **times_ms}
