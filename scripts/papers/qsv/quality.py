"""`qs-quality`: how far each way's text is from the cloud's own, over temperature (QSV Fig. 3).

Q-S samples from the quantized distribution, S-Q from the exact one and quantizes afterwards, which
is what the cloud then verifies with. Texts are sampled: answers to the sample questions, behind the
document with the evidence (`answers`), or behind a long text that has it somewhere (`long`). The
law of a block's first token follows without sampling from q, q̂ and p, at every prefix of the
cloud's own texts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution, codec, entropy, total_variation
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.verification import residual, speculative_rule
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, averages
from scripts.papers.rouge import rouge_n
from scripts.papers.speculation import Speculation, alone, model_pair
from scripts.papers.texts import answerable, with_evidence, within_long_text
from scripts.train.controllers.model_pair import AnswerReader, ModelPair
from scripts.train.controllers.prompt import Prompt

NAME = "qs-quality"
SUMMARY = "Quality of S-Q, Q-S and the cloud alone over temperature (QSV Fig. 3; 15 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
TEMPERATURES_QUICK = (0.2, 0.6, 1.0)
QUESTIONS_QUICK = 3
CLOUD = "cloud only"
WAYS: dict[str, tuple[str, str]] = {
    "Q-S, ℓ = 10": ("rejection", "qs:10"),
    "Q-S, ℓ = 100": ("rejection", "qs:100"),
    "S-Q, ℓ = 10": ("sample-quantize", "qs:10"),
    "S-Q, ℓ = 100": ("sample-quantize", "qs:100"),
}
"""Rule and codec by name. Cloud only is beside them."""
TOKENS, LENGTH = 24, 4
LONG = 6
"""A long text has so great a part of the target's context: of 1,024 tokens 170. Of so much the
bundled models, which learned from some 96, still find the answer to about half of the questions."""
METRICS = ("tv", "rouge2", "entropy")


@dataclass(frozen=True, slots=True, eq=False)
class PairPosition:
    """Both models' distributions before a token of the cloud's own text, float64 [V]."""

    q: NDArray[np.float64]
    p: NDArray[np.float64]


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per kind of text, way, temperature, question and repeat: the law's means over the
    text's positions (TV to p, entropy in nats), ROUGE-2 of the sampled answer, and the answer."""

    pair = model_pair(settings.draft, settings.target)
    heats = TEMPERATURES_QUICK if settings.quick else TEMPERATURES
    asked = answerable()[: QUESTIONS_QUICK if settings.quick else None]
    room = pair.target.context_length // LONG
    prompts = {
        "answers": [with_evidence(pair.draft, question) for question in asked],
        "long": [within_long_text(pair.draft, question, room) for question in asked],
    }
    cases = list(product(prompts, range(settings.repeats), range(len(asked)), heats))
    rows: list[Row] = []
    for done, (kind, repeat, number, heat) in enumerate(cases):
        prompt, expected = prompts[kind][number], " ".join(asked[number].expected)
        noise = Noise((settings.seed * settings.repeats + repeat) * len(asked) + number)
        common = {"kind": kind, "temperature": heat, "question": number, "repeat": repeat}
        for row in _answers(pair, prompt, expected, Sampler(heat), noise):
            rows.append(common | {"prompt_tokens": len(prompt.tokens)} | row)
        progress(done + 1, len(cases))
    return rows


def _answers(
    pair: ModelPair, prompt: Prompt, expected: str, sampler: Sampler, noise: Noise
) -> Iterator[Row]:
    """The rows of all ways to answer one question with the same noise."""

    text, positions = _cloud_text(pair, prompt, sampler, noise)
    for way, (name, coded) in WAYS.items():
        rule = speculative_rule(name, noise, sampler)
        coder = codec(coded, pair.draft.vocabulary)
        blocks = Speculation(pair, coder, length=LENGTH).blocks(prompt, rule, TOKENS)
        tokens = [token for block in blocks for token in block.tokens]
        said = _until(tokens, prompt.stops, pair)
        laws = []
        for each in positions:
            sent = coder.quantize(each.q).distribution
            exact = Distribution.from_dense(each.q)
            drawn_from = sent if rule.drafts_from_quantized else exact
            laws.append(first_token_law(drawn_from, sent, each.p))
        yield {"way": way} | _row(laws, positions, said, expected)
    laws = [each.p for each in positions]
    yield {"way": CLOUD} | _row(laws, positions, _until(text, prompt.stops, pair), expected)


def _cloud_text(
    pair: ModelPair, prompt: Prompt, sampler: Sampler, noise: Noise
) -> tuple[list[int], list[PairPosition]]:
    """What the target alone says, token by token, and what both models say on the way."""

    rule = speculative_rule("coupled", noise, sampler)
    text = alone(pair.target, prompt, rule, TOKENS)
    q, p = (
        map(rule.shape, AnswerReader(model, prompt.tokens, len(text)).after(text[:-1], 0))
        for model in (pair.draft, pair.target)
    )
    return text, list(map(PairPosition, q, p))


def _until(tokens: list[int], stops: tuple[int, ...], pair: ModelPair) -> str:
    """The text before the first stop."""
    ends = [place for place, token in enumerate(tokens) if token in stops]
    return pair.draft.decode(tokens[: ends[0] if ends else TOKENS]).strip()


def _row(
    laws: list[NDArray[np.float64]], positions: list[PairPosition], said: str, expected: str
) -> Row:
    first = [Distribution.from_dense(law) for law in laws]
    exact = [Distribution.from_dense(each.p) for each in positions]
    apart = [total_variation(law, p) for law, p in zip(first, exact, strict=True)]
    return {
        "positions": len(laws),
        "tv": float(np.mean(apart)),
        "entropy": float(np.mean([entropy(law) for law in first])),
        "rouge2": rouge_n(said, expected, 2),
        "text": said,
    }


def first_token_law(
    drawn_from: Distribution, sent: Distribution, p: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The law of a block's first token, float64 [V], from all that can happen to it.

    A draft from `drawn_from` stands with the chance min(1, p/`sent`), else the residual of `p` and
    `sent` is sampled. That is `p` itself where drafts come from what is sent (QSV Eq. 1, 2).
    """
    q, verified = drawn_from.to_dense(), sent.to_dense()
    law: NDArray[np.float64] = q * np.minimum(
        1.0, np.divide(p, verified, out=np.ones_like(p), where=verified > 0)
    )
    left = residual(p, sent)
    if not left.any():
        return q  # p and what is sent differ by rounding only
    law += (1.0 - law.sum()) * left / left.sum()
    return law


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Means with their intervals over texts, and how far each way is from the cloud alone."""
    found = {metric: averages(rows, metric, "way", "temperature") for metric in METRICS}
    summary: dict[str, Any] = {
        "largest_tv_of_q_s": max(row["tv"] for row in rows if row["way"].startswith("Q-S")),
        "largest_tv_of_s_q": max(row["tv"] for row in rows if row["way"].startswith("S-Q")),
    }
    for way, heat in found["tv"]:
        summary.setdefault(way, {})[str(heat)] = {
            metric: found[metric][way, heat].to_json() for metric in METRICS
        }
    return summary


def plot(rows: list[Row], path: Path) -> None:
    """TV to the cloud's law, ROUGE-2 and entropy over temperature.

    Hollow and dashed where the law is the cloud's.
    """
    labels = ("TV to the cloud's law", "ROUGE-2 of the answers", "entropy of a token (nats)")
    looks = {CLOUD: charts.Look(charts.BLACK, "o", "--", filled=False)}
    for number, way in enumerate(WAYS):
        biased = way.startswith("S-Q")
        looks[way] = charts.Look(
            charts.COLOURS[number], charts.MARKERS[number + 1], "-" if biased else "--", biased
        )
    with charts.picture(path, columns=3, height_inches=3.6, legend=5) as (_, axes):
        for axis, metric, label in zip(axes[0], METRICS, labels, strict=True):
            found = averages(rows, metric, "way", "temperature")
            charts.lines(axis, found, looks, apart=0.012)
            axis.set(xlabel="temperature", ylabel=label)
            axis.set_ylim(bottom=-0.03 * axis.get_ylim()[1])
