"""`sprinter-latency`: what approximate verification saves, and costs (SPRINTER Tables 2 and 3).

By the papers' methods and with blocks of fixed length, all with one rule, and by the speculative
mode by default; over a long link and a narrow one. On answers behind the document with the evidence
and on prose, or on the texts given (`--corpus`). A second picture has some of the
texts, with what became of every token (Fig. 7 and 11): each is another sample, of the target's law
but for SPRINTER's. ROUGE compares with the target's own text at temperature 0, above it with other
samples of the target. FLOPs are 2 x parameters for each token that a model was fed behind the
prompt. `paper_gflop` counts one token for each call of a sprinter's target, as Eq. 6 does.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt import bundled
from dragonrt.link.profile import LinkProfile, parse_duration
from dragonrt.modes.question import Question
from dragonrt.side import SIDES
from dragonrt.testing import loop
from dragonrt.traces.events import TokenDecided
from scripts.lab.arena import streamed_s
from scripts.lab.intervals import (
    Row,
    averages,
    distinct,
    exactly,
    grouped,
    having,
    mean,
    paired,
    ratio,
)
from scripts.lab.prompt import Prompt
from scripts.lab.recording import forwards_s
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.speculation import model_pair, question_of
from scripts.papers.sprinter.lineup import (
    COUPLED_LENGTHS,
    LENGTHS,
    METHODS,
    PAPERS,
    SPECULATIVE,
    SPRINTER,
    SPRINTERS,
    SprinterLineup,
)
from scripts.papers.texts import prompts, rouge_l, rouge_n

NAME = "sprinter-latency"
SUMMARY = "Tokens a call, time, ROUGE, FLOPs, texts (SPRINTER Tables 2, 3, Fig. 7, 11; 10 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

TOKENS = 20
LINKS = ("100ms", "nb-iot-markov")
"""Round trips, or the names of profiles."""
TEMPERATURES = (0.0, 0.8)
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
    count = settings.size(TEXTS, TEXTS_QUICK) * settings.repeats
    found = prompts(model_pair(*settings.pair).draft, count, settings.corpora)
    found.sort(key=lambda prompt: prompt.kind)
    cases = product(settings.models, enumerate(found), TEMPERATURES)

    def measure(case: tuple[str, tuple[int, Prompt], float]) -> Iterator[Row]:
        model, (place, prompt), temperature = case
        lineup = SprinterLineup.load(settings.draft, model, prompt)
        seed = settings.seed * count + place % count
        yield from _rows(lineup, prompt, question_of(prompt, seed, temperature, TOKENS))

    return measure_all(measure, list(cases), progress)


def _references(lineup: SprinterLineup, prompt: Prompt, question: Question) -> list[str]:
    """Return the target's one text without a temperature, else some of its texts."""
    seeds = [question.seed]
    if question.sampler.temperature > 0:
        seeds = [10**6 * (1 + sample) + question.seed for sample in range(REFERENCES)]
    texts = [lineup.target_text(replace(question, seed=seed), prompt) for seed in seeds]
    return [lineup.pair.target.decode(tokens) for tokens in texts]


def _rows(lineup: SprinterLineup, prompt: Prompt, question: Question) -> Iterator[Row]:
    """Yield the rows of all methods on one prompt, over each link."""
    draft, target = lineup.pair.draft, lineup.pair.target
    forward_s = dict(zip(SIDES, forwards_s(draft.name), strict=True))
    readers = lineup.readers(prompt.tokens, question.seed)
    per_draft, per_target = 2 * draft.parameters / 1e9, 2 * target.parameters / 1e9
    references = _references(lineup, prompt, question)

    def row(
        link: str, method: str, seconds: float, said: list[tuple[int, str]], **more: float
    ) -> Row:
        tokens = [token for token, _ in said]
        text, scale = target.decode(tokens), TOKENS / len(tokens)
        rouge = [
            (rouge_n(text, each, 1), rouge_n(text, each, 2), rouge_l(text, each))
            for each in references
        ]
        more["gflop"] = more["draft_gflop"] + more["target_gflop"]
        return {
            "pair": f"{draft.name}, {Path(target.name).stem}",
            "kind": prompt.kind,
            "text": question.seed,
            "temperature": question.sampler.temperature,
            "link": link,
            "method": method,
            "tokens": len(tokens),
            "seconds": seconds,
            "ms_per_token": 1e3 * seconds / len(tokens),
            **{name: each * scale if "gflop" in name else each for name, each in more.items()},
            **dict(zip(ROUGE, np.mean(rouge, axis=0).tolist(), strict=True)),
            "prefix": draft.decode(prompt.tokens),
            "said": [[target.decode([token]), each] for token, each in said],
        }

    text = lineup.target_text(question, prompt)
    for link in LINKS:
        profile = link_profile(link)
        yield row(
            link,
            TARGET_ALONE,
            streamed_s(len(text), forward_s["cloud"], 2 * profile.latency_s),
            [(token, OWN) for token in text],
            target_calls=len(text),
            **dict.fromkeys(("drafts_standing", "unverified"), 0),
            draft_gflop=0.0,
            target_gflop=per_target * (len(text) - 1),
            verifier_gflop=0.0,
            paper_gflop=per_target * len(text),
        )
        for method in METHODS:
            given, fed = loop.run(lineup.answer(method, question, readers, profile, forward_s))
            counts, head = given.counts, lineup.head(method)
            judged = counts.verified if method in SPRINTERS else counts.judged
            per_head = 0.0 if head is None else 2 * head.weight.size / 1e9
            yield row(
                link,
                method,
                given.seconds,
                [(event.token, origin(event)) for _, event in given.answer.decisions],
                target_calls=counts.calls,
                drafts_standing=counts.accepted["device"],
                unverified=counts.unverified,
                draft_gflop=per_draft * fed["device"],
                target_gflop=per_target * fed["cloud"],
                verifier_gflop=per_head * fed["device"],
                paper_gflop=per_draft * counts.forwards + per_target * judged,
            )


def link_profile(name: str) -> LinkProfile:
    """Return the link of a round trip such as 100ms, or of a profile's name."""
    if name in bundled.links():
        return LinkProfile.load(name)
    return LinkProfile(latency_s=parse_duration(name) / 2)


def origin(decision: TokenDecided) -> str:
    """Return what became of the draft in a token's place."""
    if decision.device is None:
        return OWN
    if not decision.device:
        return REPLACED
    return CONFIRMED if decision.cause == "target" else PASSED


PARTS = {"draft_gflop": "draft model", "target_gflop": "target", "verifier_gflop": "verifier"}
ROUGE = ("rouge1", "rouge2", "rougeL")
COMPARED = {
    "tokens_per_s": "tokens/s",
    "over_best_fixed": "over the best fixed length",
    "speedup": "over speculative",
    "over_target_alone": "over the target alone",
    "rouge_lost": "ROUGE-L lost",
}
"""What is estimated of each method, by headings. Seconds are those from the question on."""


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return a table for each pair of models, kind of text, temperature and link.

    The best fixed length is that of these very texts.
    """
    found: dict[str, Any] = {}
    for key, group in grouped(rows, "pair", "kind", "temperature", "link").items():
        methods = {method: _columns(some) for (method,), some in grouped(group, "method").items()}
        speeds = {method: paired(ratio, *some[:2]) for method, some in methods.items()}
        for (method,), some in grouped(group, "method").items():
            lengths = LENGTHS if method in PAPERS else COUPLED_LENGTHS
            best = max(lengths, key=lambda name: speeds[name].value)
            said = [each for row in some for _, each in row["said"]]
            values = [speeds[method]]
            for other in (best, SPECULATIVE, TARGET_ALONE):
                values.append(paired(_gain, *methods[method], *methods[other]))
            values.append(paired(_lost, *methods[method], *methods[SPECULATIVE]))
            found.setdefault("{}, {}, {:g}, {}".format(*key), {})[method] = {
                **{name: each.to_json() for name, each in zip(COMPARED, values, strict=True)},
                "tokens_per_call": _per_call(some),
                "origins": {name: round(said.count(name) / len(said), 4) for name in COLOURS},
            }
    return found


def tables(rows: list[Row]) -> list[dict[str, Any]]:
    """Return what `docs/results` shows: a line for each case and method."""
    lines = [
        [case, method, *(_shown(numbers[name]) for name in COMPARED)]
        for case, methods in summarise(rows).items()
        for method, numbers in methods.items()
    ]
    return [{"headings": ["case", "method", *COMPARED.values()], "rows": lines}]


def _shown(found: dict[str, float]) -> str:
    return "{mean:.2f} ({low:.2f}-{high:.2f})".format_map(found)


def _columns(rows: list[Row]) -> list[list[float]]:
    return [[row[name] for row in rows] for name in ("tokens", "seconds", "rougeL")]


def _gain(
    tokens: Any, seconds: Any, _: Any, others: Any, theirs_s: Any, *__: Any, axis: int
) -> Any:
    return ratio(tokens, seconds, axis) / ratio(others, theirs_s, axis)


def _lost(*columns: Any, axis: int) -> Any:
    return columns[5].mean(axis) - columns[2].mean(axis)


def _per_call(rows: list[Row]) -> float | None:
    """Return tokens per call of all texts together, as an answer may need no call at all."""
    calls = sum(row["target_calls"] for row in rows)
    return round(sum(row["tokens"] for row in rows) / calls, 3) if calls else None


def plot(rows: list[Row], path: Path) -> None:
    """Draw the costs at `path`, and beside it texts of the first pair."""
    hottest, farthest = max(row["temperature"] for row in rows), rows[-1]["link"]
    hot = having(rows, temperature=hottest)
    methods, names = distinct(hot, "method"), distinct(hot, "pair")
    height = 3.6 + 0.7 * len(methods)
    size: dict[str, Any] = {"rows": 4, "columns": len(names), "height_inches": height}
    with charts.picture(path, **size, sharex="row", sharey=True) as (figure, axes):
        for column, name in zip(axes.T, names, strict=True):
            some = having(hot, pair=name)
            far = having(some, link=farthest)
            calls = {
                key: exactly(each)
                for key, group in grouped(far, "pair", "method").items()
                if (each := _per_call(group)) is not None
            }
            times = averages(some, "ms_per_token", "link", "method")
            rouge = averages(far, "rougeL", "pair", "method")
            for axis, label, cases, found in (
                (column[0], "ms per token", "link", times),
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
    _draw_texts(having(hot, pair=names[0], link=farthest), path.with_stem(f"{path.stem}-texts"))


SHOWN_CHARACTERS, MARGIN = 96, 20
"""Of a line in the second picture, and before it for the name of the method."""


def _draw_texts(rows: list[Row], path: Path) -> None:
    """Draw the end of each prefix in grey, below it the texts, tokens on their origins' colours."""
    lines: list[tuple[str, list[tuple[str, str | None]]]] = []
    for group in list(grouped(rows, "kind", "text").values())[:SHOWN]:
        lines.append(("prefix", [("…" + group[0]["prefix"][-SHOWN_CHARACTERS:], None)]))
        lines += [(row["method"], row["said"]) for row in group if row["method"] in EXAMPLES]
    style = {"family": "monospace", "size": 8.0, "va": "center_baseline", "parse_math": False}
    with charts.picture(path, height_inches=0.17 * len(lines) + 0.5) as (figure, axes):
        from matplotlib.patches import Patch

        axis = axes[0, 0]
        axis.set(xlim=(-MARGIN, SHOWN_CHARACTERS), ylim=(len(lines), 0))
        axis.set_axis_off()
        for line, (name, tokens) in enumerate(lines):
            axis.text(-MARGIN, line + 0.5, name, color=charts.GREY, **style)
            column = 0
            for token, origin in tokens:
                text, colour = token.replace("\n", "↵"), COLOURS.get(origin or "")
                axis.text(
                    column, line + 0.5, text, color=charts.BLACK if colour else charts.GREY, **style
                )
                if colour:
                    extent = [column, column + len(text) - 0.12], line + 0.05, line + 0.95
                    axis.fill_between(*extent, color=colour, alpha=0.5, linewidth=0)
                column += len(text)
        keys = [Patch(color=colour, alpha=0.5, label=name) for name, colour in COLOURS.items()]
        figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), fontsize=8)
