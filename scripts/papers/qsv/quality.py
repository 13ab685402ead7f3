"""`qs-quality`: how far each way's text is from the cloud's own, over temperature (QSV Fig. 3).

Q-S samples from the quantized distribution, S-Q from the exact one and quantizes afterwards. Texts
are answers behind the document with the evidence (`answers`), or behind a long text that has it
somewhere (`long`). The law of a block's first token follows without sampling from q, q̂ and p.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution, codec, entropy, total_variation
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import residual, speculative_rule
from dragonrt.sampling.samplers import Sampler
from scripts.lab.intervals import Row, averages, grouped, table
from scripts.lab.model_pair import ModelPair
from scripts.lab.prompt import Prompt
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.speculation import Speculation, alone, both_behind, model_pair
from scripts.papers.texts import answerable, rouge_l, spread, with_evidence, within_long_text

NAME = "qs-quality"
SUMMARY = "Quality of S-Q, Q-S and the cloud alone over temperature (QSV Fig. 3; 15 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)

TEMPERATURES, TEMPERATURES_QUICK = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), (0.2, 0.6, 1.0)
QUESTIONS, QUESTIONS_QUICK = 12, 3
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
METRICS = {
    "tv": "TV to the cloud's law",
    "rougeL": "ROUGE-L of the answers",
    "entropy": "entropy of a token (nats)",
}


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per kind of text, way, temperature, question and repeat."""
    pair, corpus = model_pair(*settings.pair), settings.corpus
    found = answerable(corpus)
    count = settings.size(min(QUESTIONS, len(found)), QUESTIONS_QUICK)
    asked = spread(found, count, corpus or "the sample")
    room = pair.target.context_length // LONG
    others = list(dict.fromkeys(each.text.strip() for each in found))
    prompts = {
        "answers": [with_evidence(pair.draft, each) for each in asked],
        "long": [within_long_text(pair.draft, each, others, room) for each in asked],
    }

    def measure(case: tuple[str, int, int, float]) -> Iterator[Row]:
        kind, repeat, number, heat = case
        prompt, expected = prompts[kind][number], " ".join(asked[number].expected)
        noise = Noise((settings.seed * settings.repeats + repeat) * len(asked) + number)
        common = {"kind": kind, "temperature": heat, "question": number, "repeat": repeat}
        for row in _answers(pair, prompt, expected, Sampler(heat), noise):
            yield common | {"prompt_tokens": len(prompt.tokens)} | row

    heats = settings.size(TEMPERATURES, TEMPERATURES_QUICK)
    cases = list(product(prompts, range(settings.repeats), range(len(asked)), heats))
    return measure_all(measure, cases, progress)


def _answers(
    pair: ModelPair, prompt: Prompt, expected: str, sampler: Sampler, noise: Noise
) -> Iterator[Row]:
    """Yield the rows of all ways to answer one question with the same noise."""
    coupled = speculative_rule("coupled", noise, sampler)
    readers = both_behind(pair, prompt, TOKENS + LENGTH + 1)
    text = alone(readers[1], prompt.stops, coupled, TOKENS)
    q, p = ([coupled.shape(each.p) for each in reader.after(text[:-1], 0)] for reader in readers)
    for way, (name, coded) in WAYS.items():
        rule = speculative_rule(name, noise, sampler)
        coder = codec(coded, pair.draft.vocabulary)
        speculation = Speculation(pair=pair, codec=coder, length=LENGTH)
        blocks = speculation.blocks(prompt, rule, TOKENS, readers)
        tokens = [token for block in blocks for token in block.tokens]
        laws = []
        for drafted, target in zip(q, p, strict=True):
            sent = coder.quantize(drafted).distribution
            exact = Distribution.from_dense(drafted)
            laws.append(
                first_token_law(sent if rule.drafts_from_quantized else exact, sent, target)
            )
        yield {"way": way} | _row(pair, prompt, laws, p, tokens, expected)
    yield {"way": CLOUD} | _row(pair, prompt, p, p, text, expected)


def _row(
    pair: ModelPair,
    prompt: Prompt,
    laws: list[NDArray[np.float64]],
    p: list[NDArray[np.float64]],
    tokens: list[int],
    expected: str,
) -> Row:
    ends = [place for place, token in enumerate(tokens) if token in prompt.stops]
    text = pair.draft.decode(tokens[: ends[0] if ends else TOKENS]).strip()
    first, exact = ([Distribution.from_dense(each) for each in some] for some in (laws, p))
    return {
        "positions": len(laws),
        "tv": float(np.mean(list(map(total_variation, first, exact)))),
        "entropy": float(np.mean([entropy(law) for law in first])),
        "rougeL": rouge_l(text, expected),
        "text": text,
    }


def first_token_law(
    drawn_from: Distribution, sent: Distribution, p: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the law of a block's first token, float64 [V], from all that can happen to it.

    A draft from `drawn_from` is accepted with the chance min(1, p/`sent`), else the residual of `p`
    and `sent` is sampled. That is `p` itself if drafts come from what is sent (QSV Eq. 1, 2).
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
    """Return means over texts, and how far each way is from the cloud alone at most."""
    largest = {way: max(row["tv"] for row in some) for (way,), some in grouped(rows, "way").items()}
    means = table(rows, "way", "temperature", mean=tuple(METRICS))
    return {"largest_tv": largest, "means": means}


def plot(rows: list[Row], path: Path) -> None:
    """Draw a panel per metric over temperature; hollow and dashed if the law is the cloud's."""
    looks = {CLOUD: charts.Look(charts.BLACK, "o", "--", filled=False)}
    for number, way in enumerate(WAYS):
        biased = way.startswith("S-Q")
        looks[way] = charts.Look(
            charts.COLOURS[number], charts.MARKERS[number + 1], "-" if biased else "--", biased
        )
    with charts.picture(path, columns=3, height_inches=3.6, legend=5) as (_, axes):
        for axis, (metric, label) in zip(axes[0], METRICS.items(), strict=True):
            charts.lines(axis, averages(rows, metric, "way", "temperature"), looks, apart=0.012)
            axis.set(xlabel="temperature", ylabel=label)
            axis.set_ylim(bottom=-0.03 * axis.get_ylim()[1])
