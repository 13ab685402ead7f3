"""Whole texts through both machines of a mode: they come as often as the target's law says.

Coarse codecs, another draft model, blocks under way, controllers that look at all they may: the
law of the text is the target's all the same, and a rule that is known to be biased is found.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dragonrt.control.trained import Action, Controller, ControlState, Heuristic
from dragonrt.distributions import Distribution, Step, codec, mix
from dragonrt.modes import entry_of
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.mode import Prediction
from dragonrt.modes.prefix import extend_hash, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.scripted import SimulatedPrediction, scripted_resources
from tests.modes.machines import answer

V = 3
LENGTH = 3
RUNS = 800
WEIGHTS = {"one": 0.7, "two": 0.3}

Table = NDArray[np.float64]
"""A distribution for each last token, and one for the beginning: [V + 1, V]."""

DRAFTS, *TARGETS = np.random.default_rng(5).dirichlet(np.ones(V), (3, V + 1))


@dataclass(frozen=True)
class TableModel:
    """Implements SimulatedModel: what it says depends on the last token of the text alone."""

    table: Table
    seed: int
    last: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        texts = [start_hash(self.seed)]
        self.last[texts[0]] = -1
        for _ in range(LENGTH):
            longer = [(extend_hash(text, token), token) for text in texts for token in range(V)]
            self.last.update(longer)
            texts = [text for text, _ in longer]

    def predict(self, step: int, prefix_hash: int) -> Prediction:
        p = self.table[self.last[prefix_hash]].astype(np.float32)
        return SimulatedPrediction(p, 0.0, np.zeros(1, np.float32))


class Confident:
    """A controller that looks at all it may: longer and finer blocks behind what was likely."""

    name = "confident"

    def choose(self, state: ControlState) -> Action:
        sure = bool(state.confidences) and state.confidences[-1] > 0.4
        return Action(2, 4) if sure or state.accepted else Action(1, 9)


def texts(
    settings: Callable[[int], Settings],
    others: Mapping[str, Table],
    controller: Controller | None = None,
) -> NDArray[np.int64]:
    """How often each text of LENGTH tokens comes, over RUNS seeds."""
    found = np.zeros((V,) * LENGTH, np.int64)
    for seed in range(RUNS):
        question = Question(seed=seed, sampler=Sampler(1.0), max_tokens=LENGTH)
        of_seed = settings(seed)
        entry = entry_of(of_seed)
        resources = scripted_resources(of_seed, V, WEIGHTS)
        if controller is not None:
            resources = replace(resources, controller=controller)
        device = entry.device(question, of_seed, resources)
        clouds = {name: entry.cloud(question, of_seed, resources) for name in others}
        tables = {"device": DRAFTS, **others}
        models = {name: TableModel(table, seed) for name, table in tables.items()}
        answer(device, clouds, models)
        found[tuple(device.decided)] += 1
    return found


def p_value(found: NDArray[np.int64], table: Table) -> float:
    """Of the law that goes from token to token by `table`, the rarest texts taken together."""
    paths = itertools.product(range(V), repeat=LENGTH)
    law = np.array([np.prod([table[a][b] for a, b in itertools.pairwise((-1, *p))]) for p in paths])
    assert law.sum() == pytest.approx(1, abs=1e-9)
    likely = law > 5 / RUNS
    observed = [*found.ravel()[likely], found.ravel()[~likely].sum()]
    expected = np.array([*law[likely], law[~likely].sum()])
    return float(stats.chisquare(observed, RUNS * expected / expected.sum()).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "controller"),
    [
        ({"rule": "rejection", "codec": "ksqs:2:5"}, None),
        ({"rule": "rejection", "codec": "qs:5"}, Heuristic(3)),
        ({"rule": "rejection", "codec": "csqs:0.2:7"}, Confident()),
        ({"rule": "rejection", "codec": "csqs:0.2:7", "budget": 9, "learning_rate": 0.3}, None),
        ({"rule": "coupled", "codec": "ids"}, None),
        ({"rule": "rejection", "codec": "csqs:0.2:7", "draft": "lookup"}, None),
    ],
)
def test_texts_follow_the_clouds_law(fields: dict[str, Any], controller: Controller | None) -> None:
    def settings(seed: int) -> SpeculativeSettings:
        length = None if controller is not None else 1 + seed % 2
        return SpeculativeSettings(**fields, block_tokens=length, pipelined=seed % 3 > 0)

    found = texts(settings, {"cloud": TARGETS[0]}, controller)
    assert p_value(found, TARGETS[0]) > 1e-3


@pytest.mark.slow
def test_a_rule_that_is_biased_is_found() -> None:
    """Sample first, quantize then (QSV's baseline S-Q): what is verified is not what was drawn."""
    settings = SpeculativeSettings(rule="sample-quantize", codec="ksqs:2:5", block_tokens=2)
    found = texts(lambda seed: settings, {"cloud": TARGETS[0]})
    assert p_value(found, TARGETS[0]) < 1e-6


@functools.cache
def mixed_table(code: str) -> Table:
    """The mixture of what the two workers upload."""
    coder = codec(code, V)

    def uploaded(p: NDArray[np.float64]) -> Distribution:
        return coder.quantize(p.astype(np.float32), Step(0)).distribution

    rows = [
        mix([uploaded(one[row]), uploaded(two[row])], list(WEIGHTS.values())).to_dense()
        for one, two in [TARGETS]
        for row in range(V + 1)
    ]
    return np.array([row / row.sum() for row in rows])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "block_tokens"), [("coupled", 0), ("coupled", 2), ("rejection", 2)]
)
def test_texts_follow_the_mixture_of_the_uploads(rule: str, block_tokens: int) -> None:
    code = "topk:2:residual"
    settings = FederatedSettings(rule=rule, codec=code, block_tokens=block_tokens)
    found = texts(lambda seed: settings, dict(zip(WEIGHTS, TARGETS, strict=True)))
    assert p_value(found, mixed_table(code)) > 1e-3
    assert p_value(found, TARGETS[0]) < 1e-6
