"""`sprinter-latency`: what approximate verification saves, and costs (SPRINTER Tables 2 and 3).

By the paper's methods with the same rule and codec, and by the speculative mode as it comes. Two
kinds of text: answers to the sample questions behind the document that holds the answer, to their
end but 20 tokens at most, and 20 tokens of prose behind the beginnings of articles. On the virtual
clock a forward of the draft model takes 10 ms and one of the target 50 ms; on the real clock they
take what they take here. Texts are the same on both.

The paper's second table is of another pair of models. Our second pair has the same draft model, and
a target that is hardly larger: it saves no FLOPs, and its 50 ms are those of the clock.

ROUGE compares with the target's own text: at temperature 0 with the text itself, which exact
methods must give, above it with other samples of the target. FLOPs are 2 x parameters for each
token that a model was fed, behind the prompt, for 20 tokens of text, of each model and of the heads
that judge drafts. The paper counts one token for
each call of a sprinter's target (Eq. 6), although the target has to read the tokens before it, too:
`paper_gflop`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt.modes.question import Question
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import (
    Interval,
    Row,
    averages,
    distinct,
    exactly,
    grouped,
    having,
    mean,
)
from scripts.papers.rouge import rouge_l, rouge_n
from scripts.papers.sprinter.lineup import METHODS, SPRINTERS, SprinterLineup
from scripts.papers.texts import prompts
from scripts.papers.virtual_arena import streamed_s
from scripts.train.controllers.prompt import Prompt

NAME = "sprinter-latency"
SUMMARY = "Tokens per target call, time, ROUGE and FLOPs (SPRINTER Tables 2, 3; 10 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual", "real")

PAIRS = (("dragon-draft", "dragon-small"), ("dragon-draft", "dragon-opt"))
"""Draft model and target, measured unless others are asked for; a quick run has the first."""
TOKENS = 20
DRAFT_S, TARGET_S = 0.01, 0.05
ROUND_TRIPS_MS = (0, 100)
TEMPERATURES = (0.0, 1.0)
TEXTS, TEXTS_QUICK = 3, 1
"""Prompts of each kind in each repeat."""
REFERENCES = 3
"""Texts of the target that a sampled one is compared with."""
BASELINE, TARGET_ALONE = "speculative", "target alone"


@dataclass(frozen=True, slots=True)
class PromptedQuestion:
    """A prompt, and how texts go on from it; the question's seed is the text's number."""

    prompt: Prompt
    question: Question


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per pair of models, prompt, temperature, round trip and method."""

    lineups = [SprinterLineup.load(*names) for names in pairs(settings)]
    asked = [(lineup, each) for lineup in lineups for each in _asked(lineup, settings)]
    total = len(asked) * len(ROUND_TRIPS_MS) * (1 + len(METHODS))
    rows: list[Row] = []
    for lineup, each in asked:
        references = _references(lineup, each)
        for rtt_ms in ROUND_TRIPS_MS:
            for row in _rows(lineup, each, references, rtt_ms, settings.real):
                rows.append({"pair": lineup.name} | row)
                progress(len(rows), total)
    return rows


def pairs(settings: Settings) -> tuple[tuple[str, str], ...]:
    """The pairs to measure: both bundled ones, or the one that is asked for."""
    asked = (settings.draft, settings.target)
    return PAIRS if asked == PAIRS[0] and not settings.quick else (asked,)


def _asked(lineup: SprinterLineup, settings: Settings) -> "Iterator[PromptedQuestion]":
    """Every prompt at every temperature; with a corpus, prose of that only."""

    count = (TEXTS_QUICK if settings.quick else TEXTS) * settings.repeats
    if settings.corpus is None:
        found = prompts(lineup.pair.draft, 2 * count)
        found.sort(key=lambda prompt: prompt.kind)
    else:
        found = prompts(lineup.pair.draft, count, settings.corpus)
    for place, prompt in enumerate(found):
        for temperature in TEMPERATURES:
            question = Question(
                seed=settings.seed * count + place % count,
                sampler=Sampler(temperature),
                max_tokens=TOKENS,
                stop_tokens=prompt.stops,
            )
            yield PromptedQuestion(prompt, question)


def _references(lineup: SprinterLineup, asked: PromptedQuestion) -> list[str]:
    """What the target says: its one text without a temperature, else some of its texts."""
    question = asked.question
    seeds = [question.seed]
    if question.sampler.temperature > 0:
        seeds = [10**6 * (1 + sample) + question.seed for sample in range(REFERENCES)]
    texts = [lineup.target_text(replace(question, seed=seed), asked.prompt) for seed in seeds]
    return [lineup.pair.target.decode(tokens) for tokens, _ in texts]


def _rows(
    lineup: SprinterLineup,
    asked: PromptedQuestion,
    references: list[str],
    rtt_ms: int,
    real: bool,
) -> Iterator[Row]:
    """All methods on one prompt, over one link."""

    per_draft, per_target = (
        2 * model.parameters / 1e9 for model in (lineup.pair.draft, lineup.pair.target)
    )

    def row(method: str, tokens: list[int], seconds: float, **more: float) -> Row:
        scaled = {name: more.pop(name) * TOKENS / len(tokens) for name in (*PARTS, *GFLOPS)}
        return {
            "kind": asked.prompt.kind,
            "text": asked.question.seed,
            "temperature": asked.question.sampler.temperature,
            "rtt_ms": rtt_ms,
            "method": method,
            "tokens": len(tokens),
            "ms_per_token": 1e3 * seconds / len(tokens),
            **more,
            **scaled,
            **_quality(lineup, tokens, references),
        }

    text, seconds = lineup.target_text(asked.question, asked.prompt)
    rtt_s, read = rtt_ms / 1e3, len(text) - 1
    yield row(
        TARGET_ALONE,
        text,
        seconds + rtt_s if real else streamed_s(len(text), TARGET_S, rtt_s),
        target_calls=len(text),
        drafts_standing=0,
        unverified=0,
        draft_gflop=0.0,
        target_gflop=per_target * read,
        verifier_gflop=0.0,
        gflop=per_target * read,
        paper_gflop=per_target * len(text),
    )
    forward_s: dict[Side, float] | None = None
    if not real:
        forward_s = {"device": DRAFT_S, "cloud": TARGET_S}
    for method in METHODS:
        given, fed = lineup.answer(
            method, asked.question, asked.prompt.tokens, rtt_ms / 1e3, forward_s
        )
        counts = given.counts
        judged = counts.verified if method in SPRINTERS else counts.judged
        yield row(
            method,
            given.tokens,
            given.seconds,
            target_calls=counts.calls,
            drafts_standing=counts.accepted["device"],
            unverified=counts.unverified,
            draft_gflop=per_draft * fed["device"],
            target_gflop=per_target * fed["cloud"],
            verifier_gflop=lineup.head_flop(method) / 1e9 * fed["device"],
            gflop=per_draft * fed["device"] + per_target * fed["cloud"],
            paper_gflop=per_draft * counts.forwards + per_target * judged,
        )


def _quality(lineup: SprinterLineup, tokens: list[int], references: list[str]) -> Row:

    text = lineup.pair.target.decode(tokens)
    return {
        "rouge1": float(np.mean([rouge_n(text, each, 1) for each in references])),
        "rouge2": float(np.mean([rouge_n(text, each, 2) for each in references])),
        "rougeL": float(np.mean([rouge_l(text, each) for each in references])),
    }


PARTS = {
    "draft_gflop": "draft model",
    "target_gflop": "target",
    "verifier_gflop": "verifier",
}
GFLOPS = ("gflop", "paper_gflop")
METRICS = ("ms_per_token", "rouge1", "rouge2", "rougeL", *PARTS, *GFLOPS)


def summarise(rows: list[Row]) -> dict[str, Any]:
    """A table for each pair of models, kind of text, temperature and round trip: means with their
    intervals over texts, and ratios of means: the speed-ups over speculative decoding and the
    target alone."""
    keys = ("pair", "kind", "temperature", "rtt_ms", "method")
    found = {metric: averages(rows, metric, *keys) for metric in METRICS}
    summary: dict[str, Any] = {}
    for key, group in grouped(rows, *keys).items():
        *common, method = key
        pair, kind, temperature, rtt_ms = common
        case = f"{kind}, temperature {temperature:g}, round trip {rtt_ms} ms"
        own_ms, baseline_ms, alone_ms = (
            found["ms_per_token"][*common, each].value for each in (method, BASELINE, TARGET_ALONE)
        )
        summary.setdefault(pair, {}).setdefault(case, {})[method] = {
            **_per_call(group),
            "speedup": round(baseline_ms / own_ms, 3),
            "over_target_alone": round(alone_ms / own_ms, 3),
            **{metric: found[metric][key].to_json() for metric in METRICS},
        }
    return summary


def _per_call(rows: list[Row]) -> dict[str, float | None]:
    """Over all texts together, as an answer may need no call at all."""
    tokens, calls, standing, unverified = (
        sum(row[name] for row in rows)
        for name in ("tokens", "target_calls", "drafts_standing", "unverified")
    )
    return {
        "tokens_per_call": round(tokens / calls, 3) if calls else None,
        "drafts_standing_per_call": round(standing / calls, 3) if calls else None,
        "unverified": round(unverified / tokens, 4),
    }


def plot(rows: list[Row], path: Path) -> None:
    """A column for each pair of models, at the highest temperature: ms per token by round trip,
    tokens per target call, ROUGE-L, and FLOPs by component."""
    hottest, farthest = (max(row[name] for row in rows) for name in ("temperature", "rtt_ms"))
    hot = [
        row | {"case": f"round trip {row['rtt_ms']} ms"}
        for row in having(rows, temperature=hottest)
    ]
    methods, names = distinct(hot, "method"), distinct(hot, "pair")
    with charts.picture(
        path, rows=4, columns=len(names), height_inches=9.6, sharex="row", sharey=True
    ) as (figure, axes):
        for column, name in zip(axes.T, names, strict=True):
            some = having(hot, pair=name)
            far = having(some, rtt_ms=farthest)
            calls = {
                key: exactly(each)
                for key, group in grouped(far, "pair", "method").items()
                if (each := _per_call(group)["tokens_per_call"]) is not None
            }
            for axis, label, cases, found in (
                (column[0], "ms per token", "case", _means(some, "ms_per_token", "case")),
                (column[1], "tokens per target call", "pair", calls),
                (column[2], "ROUGE-L against the target's texts", "pair", _means(far, "rougeL")),
            ):
                looks = charts.looks(distinct(some, cases))
                charts.bars(axis, found, looks, methods, horizontal=True)
                axis.set_xlabel(label)
            column[0].set_title(name, pad=20)
            _stack(column[3], far)
        for axis in axes[(0, 3), 0]:
            axis.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        figure.suptitle(f"{' and '.join(distinct(rows, 'kind'))}, temperature {hottest:g}")


def _stack(axis: Any, rows: list[Row]) -> None:
    """FLOPs of each method, part by part."""
    methods = distinct(rows, "method")
    left = np.zeros(len(methods))
    for (part, name), look in zip(PARTS.items(), charts.looks(PARTS).values(), strict=True):
        widths = np.array([mean(having(rows, method=method), part) for method in methods])
        axis.barh(range(len(methods)), widths, 0.6, left, color=look.colour, label=name)
        left += widths
    axis.set_xlabel("GFLOP for 20 tokens")


def _means(rows: list[Row], metric: str, by: str = "pair") -> dict[tuple[Any, ...], Interval]:
    return averages(rows, metric, by, "method")
