"""`specfed-uploads`: what top-K uploads change (SPEC 3, SPECFED Fig. 2, 3).

Their aggregation bias (Theorem 2), and how much it changes how often drafts are accepted
(Theorem 3): a picture of each. Uploads have half-precision values, the bound has exact ones. At the
same positions workers weigh alike, and one weighs more (as `--worker HOST:PORT=0.7`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.model import LanguageModel
from dragonrt.distributions import Distribution, codec, mix
from dragonrt.sampling.samplers import Sampler
from scripts.lab.intervals import Row, averages, distinct, grouped, significant, table
from scripts.lab.model_pair import AnswerReader
from scripts.lab.prompt import Prompt, TextKind
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.speculation import model_pair
from scripts.papers.texts import prompts
from scripts.papers.theory import acceptance_change, aggregation_bias, bias_bound, missed_mass

NAME = "specfed-uploads"
SUMMARY = "Bias and acceptance change of top-K uploads over K (SPECFED Fig. 2, 3; 3 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)

TEMPERATURES = (0.4, 0.7, 1.0, 1.3)
KS = (4, 16, 64, 256, 1024, 4096)
FORMS = ("renorm", "residual")
TOKENS, TOKENS_QUICK = 16, 10
TEXTS_QUICK, TEXTS_PER_REPEAT = 3, 2
"""Of each kind."""
FP16_ERROR = 2.0**-10
"""At most so much of the total variation is half precision's: its values keep 11 bits."""
CHANGES = {"bias": "aggregation bias (TV), mean", "acceptance_change": "change of acceptance, mean"}


HEAVY = 0.7
"""The weight of one worker among others that share the rest."""


@dataclass(frozen=True, slots=True)
class FederatedPosition:
    """The distributions before token `step` of a text, float64 [V], the temperature applied."""

    kind: TextKind
    text: int
    step: int
    workers: tuple[NDArray[np.float64], ...]
    draft: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Federation:
    """The workers' models and the draft model."""

    workers: tuple[LanguageModel, ...]
    draft: LanguageModel

    @classmethod
    def load(cls, settings: Settings, prompt: Prompt | None = None) -> "Federation":
        """Load the figure's models as such a prompt is put to them.

        Raises DragonError where their tokens do not mean the same.
        """
        pairs = [model_pair(settings.draft, model, prompt) for model in settings.models]
        return cls(tuple(pair.target for pair in pairs), pairs[0].draft)

    @property
    def weightings(self) -> dict[str, list[float]]:
        """The workers' weights by name: all alike, then each heavy in turn."""
        names = [Path(model.name).name for model in self.workers]
        places = range(len(names))
        found = [[1 / len(names)] * len(names)]
        if len(names) > 1:
            light = (1 - HEAVY) / (len(names) - 1)
            found += [[HEAVY if one == heavy else light for one in places] for heavy in places]
        return {", ".join(map("{} {:.2g}".format, names, each)): each for each in found}

    def positions(
        self, temperature: float, number: int, prompt: Prompt, tokens: int, seed: int
    ) -> Iterator[FederatedPosition]:
        """Yield every position of a text behind the prompt, `tokens` at most."""
        random = np.random.default_rng((seed, number))
        sampler, text = Sampler(temperature), list[int]()
        readers = [
            AnswerReader(model, prompt.tokens, tokens) for model in (*self.workers, self.draft)
        ]
        while len(text) < tokens and set(prompt.stops).isdisjoint(text):
            *workers, draft = (
                sampler.dense(reader.after(text, len(text))[0].p) for reader in readers
            )
            yield FederatedPosition(prompt.kind, number, len(text), tuple(workers), draft)
            target = np.mean(workers, axis=0)
            text.append(int(random.choice(target.size, p=target / target.sum())))


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per temperature, position, K, reconstruction and weights."""
    draft = Federation.load(settings).draft
    each = settings.size(TEXTS_PER_REPEAT * settings.repeats, TEXTS_QUICK)
    tokens = settings.size(TOKENS, TOKENS_QUICK)

    def measure(case: tuple[float, tuple[int, Prompt]]) -> Iterator[Row]:
        temperature, (number, prompt) = case
        federation = Federation.load(settings, prompt)
        for position in federation.positions(temperature, number, prompt, tokens, settings.seed):
            yield from changes(position, temperature, federation.weightings)

    cases = product(TEMPERATURES, enumerate(prompts(draft, each, settings.corpora)))
    return measure_all(measure, list(cases), progress)


def changes(
    position: FederatedPosition, temperature: float, weightings: Mapping[str, list[float]]
) -> Iterator[Row]:
    """Yield the rows of one position."""
    exact = [Distribution.from_dense(p) for p in position.workers]
    draft = Distribution.from_dense(position.draft)
    targets = {name: mix(exact, weights) for name, weights in weightings.items()}
    for k, form in product(KS, FORMS):
        missed = [missed_mass(p, k) for p in position.workers]
        code = codec(f"topk:{k}:{form}", position.draft.size)
        uploads = [code.quantize(p).distribution for p in position.workers]
        for name, weights in weightings.items():
            yield {
                "kind": position.kind,
                "weights": name,
                "temperature": temperature,
                "text": position.text,
                "step": position.step,
                "k": k,
                "reconstruction": form,
                "bound": bias_bound(weights, missed),
                "bias": aggregation_bias(uploads, exact, weights),
                "acceptance_change": acceptance_change(draft, mix(uploads, weights), targets[name]),
            }


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return means beside the bound, and by how much a position exceeds it at most."""
    keys = ("weights", "temperature", "k", "reconstruction")
    excess = {name: max(row[name] - row["bound"] for row in rows) for name in CHANGES}
    return {
        "positions": len(grouped(rows, "temperature", "text", "step")),
        "largest_excess": {name: significant(each, 3) for name, each in excess.items()},
        "half_precision": FP16_ERROR,
        "means": table(rows, *keys, mean=("bound", *CHANGES)),
    }


def plot(rows: list[Row], path: Path) -> None:
    """Draw the bias at `path` and the change of acceptance beside it."""
    weightings, heats = distinct(rows, "weights"), sorted(distinct(rows, "temperature"))
    panels = grouped(rows, "weights", "temperature")
    size: dict[str, Any] = {"rows": len(weightings), "columns": len(heats)}
    size["height_inches"] = 1.2 + 2.4 * len(weightings)
    bounds = {"bound": charts.Look(charts.BLACK, "", ":", label="bound $\\sum_i w_i r_i$")}
    for column, label in CHANGES.items():
        own = path if column == "bias" else path.with_stem(f"{path.stem}-acceptance")
        with charts.picture(own, **size, legend=3, sharex=True, sharey=True) as (figure, axes):
            for axis, key in zip(axes.flat, product(weightings, heats), strict=True):
                bound = averages(panels[key], "bound", "k")
                curve = {("bound", k): each for (k,), each in bound.items()}
                charts.lines(axis, curve, bounds, intervals=False)
                found = averages(panels[key], column, "reconstruction", "k")
                charts.lines(axis, found, charts.looks(FORMS))
                axis.set_xscale("log", base=4)
                axis.set_xticks(KS[::2], [str(k) for k in KS[::2]])
                axis.set(yscale="log", ylim=(1e-5, 1))
            for axis, heat in zip(axes[0], heats, strict=True):
                axis.set_title(f"temperature {heat:g}")
            for axis in axes[-1]:
                axis.set_xlabel("K")
            for axis, weights in zip(axes[:, 0], weightings, strict=True):
                axis.set_ylabel(weights.replace(", ", ",\n"), fontsize=6.5)
            figure.suptitle(f"{label}, by the workers' weights")
