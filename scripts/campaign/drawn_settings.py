"""Random settings of an answer, for each mode."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.mode import OnLoss
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.testing.faults import Schedule

AGGREGATIONS = [("coupled", aggregator) for aggregator in Aggregator] + [
    ("algorithm1", aggregator) for aggregator in Aggregator if aggregator is not Aggregator.BOTH
]
VERIFICATIONS = (
    ("coupled", "ids"),
    ("coupled", "ksqs:6:40"),
    ("rejection", "ksqs:6:40"),
    ("rejection", "csqs:0.03:60"),
    ("rejection", "qs:100"),
    ("rejection", "dense:fp16"),
    ("sample-quantize", "ksqs:5:20"),
)
DISTRIBUTIONS = ("topp:0.8", "topp:0.95", "topk:8:residual", "topk:4:renorm", "dense:fp16")
CADENCES = {"20ms": 500e3, "70ms": 150e3, "200ms": 50e3}
"""Each with the bit/s that carry it."""
REVEALS = {1.0: 8.0, 1.5: 4.0, 8.0: 2.0}
"""Budgets of bits, by how many times likelier a token is that is withheld anyway."""


def _disclosures(rule: str, aggregator: Aggregator) -> list[Disclosure]:
    """The levels that go with the rule and with who decides."""
    if aggregator not in (Aggregator.BOTH, Aggregator.DEVICE, Aggregator.SYNC):
        return [Disclosure.DRAFTS]
    redacts = [Disclosure.REDACTED] if rule == "coupled" else []
    return [Disclosure.DRAFTS, Disclosure.ANSWER, *redacts]


def _traffic(chance: random.Random, bandwidth: float | None) -> str | None:
    """A shape that the link carries."""
    frames = chance.choice((None, "plain", "padded"))
    carried = [each for each, bits in CADENCES.items() if bits <= (bandwidth or bits)]
    tick, ticks = chance.choice((None, None, chance.choice(carried))), chance.choice((5, 20, 60))
    return frames if tick is None else f"constant:{tick}:{ticks}"


def _dragon(chance: random.Random, link: Schedule, on_loss: OnLoss) -> Settings:
    rule, aggregator = chance.choice(AGGREGATIONS)
    code, run_ahead = chance.choice(DISTRIBUTIONS), chance.choice((1, 2, 4, 8, 32))
    follow, disclose = chance.random() < 0.7, chance.choice(_disclosures(rule, aggregator))
    chance.choice(range(7))  # for a setting that is gone: seeds in tests keep their scenarios
    return DragonSettings(
        rule=rule,
        aggregator=aggregator,
        codec=code,
        run_ahead=run_ahead,
        follow=follow,
        disclose=disclose,
        withhold=(withhold := chance.choice((1.0, 1.5, 8.0))),
        reveal=REVEALS[withhold],
        traffic=_traffic(chance, link.bandwidth),
        on_loss=on_loss,
    )


def _speculative(chance: random.Random, link: Schedule, on_loss: OnLoss) -> Settings:
    rule, code = chance.choice(VERIFICATIONS)
    # Where the rule is coupled, where blocks end does not matter.
    controlled = rule == "coupled" and chance.random() < 0.2
    made = SpeculativeSettings(
        rule=rule,
        codec=code,
        block_tokens=None if controlled else chance.choice((1, 2, 4, 6, None)),
        budget=chance.choice((None, None, 80)),
        controller=chance.choice(("static:3:20", "heuristic:50")) if controlled else None,
        pipelined=chance.random() < 0.7,
        learning_rate=0.05,
        target=0.02,
        on_loss=on_loss,
        cloud_decodes=chance.random() < 0.7,
    )
    silent = made.decodes and not controlled and chance.random() < 0.1
    return replace(made, block_tokens=0) if silent else made


def _federated(chance: random.Random, link: Schedule, on_loss: OnLoss) -> Settings:
    return FederatedSettings(
        rule=chance.choice(("coupled", "rejection")),
        codec=chance.choice(("topk:4:residual", "topk:3:renorm", "dense:fp16")),
        block_tokens=chance.choice((0, 1, 4, 8)),
        weights=chance.choice(("fixed", "relevance")),
        quorum_deadline=chance.choice((None, None, 0.3)),
        require_all=chance.random() < 0.3,
    )


def _sprinter(chance: random.Random, link: Schedule, on_loss: OnLoss) -> Settings:
    return SprinterSettings(
        codec=chance.choice(("dense:fp32", "topk:8:renorm", "ksqs:8:100", "topp:0.9")),
        threshold=chance.choice((None, 0.2, 0.9, 1.0)),
        run_length=chance.choice((1, 3, 32)),
        on_loss=on_loss,
    )


_DRAWN: Mapping[str, Callable[[random.Random, Schedule, OnLoss], Settings]] = {
    "dragon": _dragon,
    "speculative": _speculative,
    "federated": _federated,
    "sprinter": _sprinter,
}


def drawn_settings(chance: random.Random, mode: str, link: Schedule) -> Settings:
    """Return random settings of `mode` that fit the bandwidth of `link`."""
    on_loss: OnLoss = "wait" if chance.random() < 0.5 else "alone"
    return _DRAWN[mode](chance, link, on_loss)
