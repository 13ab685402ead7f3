"""The target's probabilities, for whoever asks: who knows them, and what they are."""

import numpy as np
import pytest

from dragonrt.distributions import Distribution
from dragonrt.modes.dragon.decision import ranked
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.privacy.evidence import SideDraft
from dragonrt.sampling.samplers import Sampler
from dragonrt.settings import assemble

GREEDY = Sampler(temperature=0.0)


def draft(p: list[float], relevance: float) -> SideDraft:
    dense = np.array(p)
    token = int(dense.argmax())
    return SideDraft(0, 0, token, b"", relevance, 0.0, Distribution.from_dense(dense))


def test_they_are_those_of_the_mixture() -> None:
    own, theirs = draft([0.7, 0.3, 0.0, 0.0], 0.0), draft([0.0, 0.5, 0.4, 0.1], np.log(3))
    (found,) = ranked(3, 1, own, theirs)
    assert (found.step, found.token) == (0, 1)
    assert found.tokens == (1, 2, 0)
    assert found.probabilities == pytest.approx([0.3 / 4 + 0.5 * 3 / 4, 0.3, 0.7 / 4])
    assert found.probability == pytest.approx(found.probabilities[0])
    (alone,) = ranked(0, 1, own, None)
    assert (alone.probability, alone.tokens) == (0.3, ())
    unread = SideDraft(0, 0, 1, b"x", 0.0, 0.0)
    assert not ranked(3, 1, own, unread)


@pytest.mark.parametrize(
    ("settings", "known"),
    [
        (DragonSettings(), True),
        (assemble(DragonSettings, {"disclose": "answer"}), True),
        (assemble(DragonSettings, {"disclose": "redacted"}), True),
        (assemble(DragonSettings, {"aggregator": "sync"}), True),
        (assemble(DragonSettings, {"aggregator": "greedy"}), False),
        (assemble(DragonSettings, {"aggregator": "cloud"}), False),
        (DragonSettings(codec="dense:fp16"), True),
        (SpeculativeSettings(), False),
        (FederatedSettings(), False),
        (SprinterSettings(), False),
    ],
)
def test_who_decides_from_both_distributions_knows_them(settings: Settings, known: bool) -> None:
    assert (settings.unranked is None) == known
