"""`sprinter-latency`: what approximate verification saves, and costs (SPRINTER Tables 2 and 3).

By the paper's methods with the same rule and codec, and by the speculative mode by default. Two
kinds of text, of 20 tokens at most: answers to the sample questions behind the document with the
evidence, and prose behind the beginnings of articles. On the virtual clock a forward of the draft
model takes 10 ms and one of the target 50 ms. Texts are the same on both clocks. A second picture
has some of the texts, with what became of every token (Fig. 7 and 11). Texts differ between the
methods by chance, too: each is another sample, of the target's law but for SPRINTER's.

The paper's second table is of another pair of models. Our second pair has the same draft model, and
a target that is hardly larger: it saves no FLOPs, and its 50 ms are those of the clock.

ROUGE compares with the target's own text: at temperature 0 with the text itself, which exact
methods must give, above it with other samples of the target. FLOPs are 2 x parameters for each
token that a model was fed behind the prompt, for 20 tokens of text, of each model and of the heads
that judge drafts. `paper_gflop` counts one token for each call of a sprinter's target, as the paper
does (Eq. 6), although the target has to read the tokens before it, too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt.modes.question import Question
from dragonrt.side import Side
from dragonrt.traces.events import TokenDecided
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.intervals import Row, averages, distinct, exactly, grouped, having, mean
from scripts.papers.model_sides import question_of
from scripts.papers.model_sides import run as run_main
from scripts.papers.sprinter.lineup import (
    METHODS,
    SPECULATIVE,
    SPRINTER,
    SPRINTERS,
    SprinterLineup,
)
from scripts.papers.texts import prompts, rouge_l, rouge_n
from scripts.papers.virtual_arena import streamed_s
from scripts.train.controllers.prompt import Prompt

NAME = "sprinter-latency"
SUMMARY = (
    "Tokens per call, time, ROUGE, FLOPs, texts (SPRINTER Tables 2, 3, Fig. 7, 11; 10 minutes)"
)
CLOCKS: tuple[Clock, ...] = ("virtual", "real")

TOKENS = 20
FORWARD_S: dict[Side, float] = {"device": 0.01, "cloud": 0.05}
ROUND_TRIPS_MS = (0, 100)
TEMPERATURES = (0.0, 1.0)
TEXTS, TEXTS_QUICK = 3, 1
"""Prompts of each kind in each repeat."""
REFERENCES = 3
"""Texts of the target that a sampled one is compared with."""
TARGET_ALONE = "target alone"
EXAMPLES = (TARGET_ALONE, SPECULATIVE, SPRINTER)
SHOWN = 5
"""Texts of each kind in the second picture."""

PASSED, CONFIRMED, REPLACED, OWN = (
    "drafted, passed by the verifier",
    "drafted, confirmed by the target",
    "replaced by the target",
    "the target's own",
)
COLOURS = {
    PASSED: charts.SKY,
    CONFIRMED: charts.GREEN,
    REPLACED: charts.VERMILION,
    OWN: charts.YELLOW,
}


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per pair of models, prompt, temperature, round trip and method."""
    lineups = [SprinterLineup.load(settings.draft, model) for model in settings.models]
    draft, count = lineups[0].pair.draft, settings.size(TEXTS, TEXTS_QUICK) * settings.repeats
    found = prompts(draft, count if settings.corpus else 2 * count, settings.corpus)
    found.sort(key=lambda prompt: prompt.kind)
    cases = product(lineups, enumerate(found), TEMPERATURES)

    def measure(case: tuple[SprinterLineup, tuple[int, Prompt], float]) -> Iterator[Row]:
        lineup, (place, prompt), temperature = case
        seed = settings.seed * count + place % count
        yield from _rows(lineup, prompt, question_of(prompt, seed, temperature, TOKENS), settings)

    return measure_all(measure, list(cases), progress)


def _references(lineup: SprinterLineup, prompt: Prompt, question: Question) -> list[str]:
    """Return the target's one text without a temperature, else some of its texts."""
    seeds = [question.seed]
    if question.sampler.temperature > 0:
        seeds = [10**6 * (1 + sample) + question.seed for sample in range(REFERENCES)]
    texts = [lineup.target_text(replace(question, seed=seed), prompt) for seed in seeds]
    return [lineup.pair.target.decode(tokens) for tokens, _ in texts]


def _rows(
    lineup: SprinterLineup, prompt: Prompt, question: Question, settings: Settings
) -> Iterator[Row]:
    """Yield the rows of all methods on one prompt, over each link."""
    draft, target = lineup.pair.draft, lineup.pair.target
    per_draft, per_target = 2 * draft.parameters / 1e9, 2 * target.parameters / 1e9
    references = _references(lineup, prompt, question)

    def row(
        rtt_ms: int,
        method: str,
        tokens: list[int],
        origins: list[str],
        seconds: float,
        **more: float,
    ) -> Row:
        text = target.decode(tokens)
        rouge = [
            (rouge_n(text, each, 1), rouge_n(text, each, 2), rouge_l(text, each))
            for each in references
        ]
        scale = TOKENS / len(tokens)
        return {
            "pair": f"{draft.name}, {target.name}",
            "kind": prompt.kind,
            "text": question.seed,
            "temperature": question.sampler.temperature,
            "rtt_ms": rtt_ms,
            "method": method,
            "tokens": len(tokens),
            "ms_per_token": 1e3 * seconds / len(tokens),
            **{name: each * scale if "gflop" in name else each for name, each in more.items()},
            **dict(
                zip(("rouge1", "rouge2", "rougeL"), np.mean(rouge, axis=0).tolist(), strict=True)
            ),
            "prefix": draft.decode(prompt.tokens),
            "said": [
                [target.decode([token]), each] for token, each in zip(tokens, origins, strict=True)
            ],
        }

    for rtt_ms in ROUND_TRIPS_MS:
        text, seconds = lineup.target_text(question, prompt)
        rtt_s, read = rtt_ms / 1e3, per_target * (len(text) - 1)
        streamed = streamed_s(len(text), FORWARD_S["cloud"], rtt_s)
        yield row(
            rtt_ms,
            TARGET_ALONE,
            text,
            [OWN] * len(text),
            seconds + rtt_s if settings.real else streamed,
            target_calls=len(text),
            drafts_standing=0,
            unverified=0,
            draft_gflop=0.0,
            target_gflop=read,
            verifier_gflop=0.0,
            gflop=read,
            paper_gflop=per_target * len(text),
        )
        for method in METHODS:
            forward_s = None if settings.real else FORWARD_S
            answer = lineup.answer(method, question, prompt.tokens, rtt_s, forward_s)
            given, fed = run_main(answer, virtual=not settings.real)
            counts, head = given.counts, lineup.head(method)
            judged = counts.verified if method in SPRINTERS else counts.judged
            per_head = 0.0 if head is None else 2 * head.weight.size / 1e9
            yield row(
                rtt_ms,
                method,
                given.tokens,
                [origin(event) for _, event in given.answer.decisions],
                given.seconds,
                target_calls=counts.calls,
                drafts_standing=counts.accepted["device"],
                unverified=counts.unverified,
                draft_gflop=per_draft * fed["device"],
                target_gflop=per_target * fed["cloud"],
                verifier_gflop=per_head * fed["device"],
                gflop=per_draft * fed["device"] + per_target * fed["cloud"],
                paper_gflop=per_draft * counts.forwards + per_target * judged,
            )


def origin(decision: TokenDecided) -> str:
    """Return what became of the draft in a token's place."""
    if decision.device is None:
        return OWN
    if not decision.device:
        return REPLACED
    return CONFIRMED if decision.cause == "target" else PASSED


PARTS = {
    "draft_gflop": "draft model",
    "target_gflop": "target",
    "verifier_gflop": "verifier",
}
METRICS = ("ms_per_token", "rouge1", "rouge2", "rougeL", *PARTS, "gflop", "paper_gflop")


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return a table for each pair of models, kind of text, temperature and round trip.

    Means with their intervals over texts, and ratios of means: the speed-ups over speculative
    decoding and the target alone. `origins` are shares of the tokens.
    """
    keys = ("pair", "kind", "temperature", "rtt_ms", "method")
    found = {metric: averages(rows, metric, *keys) for metric in METRICS}
    summary: dict[str, Any] = {}
    for key, group in grouped(rows, *keys).items():
        *common, method = key
        pair, kind, temperature, rtt_ms = common
        case = f"{kind}, temperature {temperature:g}, round trip {rtt_ms} ms"
        own_ms, baseline_ms, alone_ms = (
            found["ms_per_token"][*common, each].value
            for each in (method, SPECULATIVE, TARGET_ALONE)
        )
        said = [each for row in group for _, each in row["said"]]
        summary.setdefault(pair, {}).setdefault(case, {})[method] = {
            **_per_call(group),
            "speedup": round(baseline_ms / own_ms, 3),
            "over_target_alone": round(alone_ms / own_ms, 3),
            **{metric: found[metric][key].to_json() for metric in METRICS},
            "origins": {name: round(said.count(name) / len(said), 4) for name in COLOURS},
        }
    return summary


def _per_call(rows: list[Row]) -> dict[str, float | None]:
    """Return rates of all texts together, as an answer may need no call at all."""
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
    """Draw the costs at `path`, and beside it texts of the first pair.

    A column for each pair of models, at the highest temperature: ms per token by round trip,
    tokens per target call, ROUGE-L, and FLOPs by component.
    """
    hottest, farthest = (max(row[name] for row in rows) for name in ("temperature", "rtt_ms"))
    hot = [
        row | {"case": f"round trip {row['rtt_ms']} ms"}
        for row in having(rows, temperature=hottest)
    ]
    methods, names = distinct(hot, "method"), distinct(hot, "pair")
    size: dict[str, Any] = {"rows": 4, "columns": len(names), "height_inches": 9.6}
    with charts.picture(path, **size, sharex="row", sharey=True) as (figure, axes):
        for column, name in zip(axes.T, names, strict=True):
            some = having(hot, pair=name)
            far = having(some, rtt_ms=farthest)
            calls = {
                key: exactly(each)
                for key, group in grouped(far, "pair", "method").items()
                if (each := _per_call(group)["tokens_per_call"]) is not None
            }
            times = averages(some, "ms_per_token", "case", "method")
            rouge = averages(far, "rougeL", "pair", "method")
            for axis, label, cases, found in (
                (column[0], "ms per token", "case", times),
                (column[1], "tokens per target call", "pair", calls),
                (column[2], "ROUGE-L against the target's texts", "pair", rouge),
            ):
                looks = charts.looks(distinct(some, cases))
                charts.bars(axis, found, looks, methods, horizontal=True)
                axis.set_xlabel(label)
            column[0].set_title(name, pad=20)
            left = np.zeros(len(methods))
            for (part, label), look in zip(
                PARTS.items(), charts.looks(PARTS).values(), strict=True
            ):
                widths = [mean(having(far, method=method), part) for method in methods]
                column[3].barh(
                    range(len(methods)), widths, 0.6, left, color=look.colour, label=label
                )
                left += widths
            column[3].set_xlabel("GFLOP for 20 tokens")
        for axis in axes[(0, 3), 0]:
            axis.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        figure.suptitle(f"{' and '.join(distinct(rows, 'kind'))}, temperature {hottest:g}")
    _draw_texts(having(hot, pair=names[0], rtt_ms=farthest), path.with_stem(f"{path.stem}-texts"))


COLUMNS, MARGIN = 116, 14
"""Characters of a line, and those before it that name the method."""
FONT_POINTS, LINE_INCHES = 8.0, 0.17

Placed = tuple[int, int, str, str | None]
"""Line, column, text and origin (None of what is given) of a token in the picture."""


def _draw_texts(rows: list[Row], path: Path) -> None:
    """Draw each prefix in grey, below it the texts, every token on the colour of its origin."""
    line, placed = 0, list[Placed]()
    for group in list(grouped(rows, "kind", "text").values())[:SHOWN]:
        given = [(f"{word} ", None) for word in group[0]["prefix"].split()]
        texts = {"prefix": given} | {
            row["method"]: row["said"] for row in group if row["method"] in EXAMPLES
        }
        for name, tokens in texts.items():
            placed.append((line, 0, name, None))
            placed += _laid(tokens, line)
            line = placed[-1][0] + 1
        line += 1
    with charts.picture(path, height_inches=LINE_INCHES * line + 0.5) as (figure, axes):
        from matplotlib.patches import Patch

        axis = axes[0, 0]
        axis.set(xlim=(0, COLUMNS), ylim=(line, 0))
        axis.set_axis_off()
        for line, column, text, origin in placed:
            axis.text(
                column,
                line + 0.5,
                text,
                family="monospace",
                size=FONT_POINTS,
                color=charts.GREY if origin is None else charts.BLACK,
                verticalalignment="center_baseline",
                parse_math=False,
            )
            if origin is not None:
                extent = [column, column + len(text) - 0.12], line + 0.05, line + 0.95
                axis.fill_between(*extent, color=COLOURS[origin], alpha=0.5, linewidth=0)
        keys = [Patch(color=colour, alpha=0.5, label=name) for name, colour in COLOURS.items()]
        figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), fontsize=8)


def _laid(tokens: Iterable[tuple[str, str | None]], line: int) -> Iterator[Placed]:
    """Yield the tokens from that line on, none of them broken."""
    column = MARGIN
    for token, origin in tokens:
        shown = token.replace("\n", "↵")
        if column + len(shown) > COLUMNS:
            line, column = line + 1, MARGIN
        yield line, column, shown, origin
        column += len(shown)
