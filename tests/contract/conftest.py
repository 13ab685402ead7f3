"""Every way in which the modes work, on which the contract of a mode is tested."""

from dataclasses import replace
from typing import Any

import pytest

from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.privacy.disclosure import Disclosure

LEADERLESS = DragonSettings(codec="topp:0.95", run_ahead=8)
WAYS: dict[str, Settings] = {
    "leaderless": LEADERLESS,
    "the answer's tokens alone": replace(LEADERLESS, disclose=Disclosure.ANSWER),
    "redacted tokens": replace(LEADERLESS, disclose=Disclosure.REDACTED, withhold=2.0),
    "a frame a tick": replace(LEADERLESS, traffic="constant:100ms:10"),
    "algorithm1": DragonSettings(rule="algorithm1", aggregator=Aggregator.GREEDY),
    "step by step": replace(LEADERLESS, aggregator=Aggregator.SYNC),
    "dense drafts": DragonSettings(codec="dense:fp16", run_ahead=4),
    "drafts with a rest": DragonSettings(codec="topk:8:residual", aggregator=Aggregator.GREEDY),
    "blocks of ids": SpeculativeSettings(block_tokens=3),
    "verdicts on ids alone": SpeculativeSettings(block_tokens=3, cloud_decodes=False),
    "blocks of points": SpeculativeSettings(rule="rejection", codec="ksqs:6:40"),
    "conformal blocks": SpeculativeSettings(
        rule="rejection", codec="csqs:0.03:60", block_tokens=2, learning_rate=0.05, target=0.02
    ),
    "dense blocks, one by one": SpeculativeSettings(
        rule="rejection", codec="dense:fp16", budget=800, pipelined=False
    ),
    "blocks that are looked up": SpeculativeSettings(
        rule="rejection", codec="ksqs:6:40", draft="lookup"
    ),
    "workers": FederatedSettings(codec="topk:4:residual", block_tokens=4),
    "workers, dense, by rejection": FederatedSettings(
        rule="rejection", codec="dense:fp16", block_tokens=3
    ),
    "workers without drafts": FederatedSettings(codec="topk:3:renorm", block_tokens=0),
    "sprinter": SprinterSettings(codec="topk:8:renorm", threshold=0.5),
    "dense sprinter": SprinterSettings(codec="dense:fp32", run_length=3),
}


@pytest.fixture(params=WAYS)
def way(request: Any) -> Settings:
    """How the sides work together, each in turn."""
    return WAYS[request.param]


@pytest.fixture
def waiting(way: Settings) -> Settings:
    """The same, so that no loss changes the text: whoever is lost is waited for."""
    if isinstance(way, FederatedSettings):
        return replace(way, require_all=True)
    own: Any = way  # every other mode has the field
    kept: Settings = replace(own, on_loss="wait")
    return kept
