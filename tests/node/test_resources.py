"""What a device brings along: the verifier that fits its two models."""

import numpy as np
import pytest

from dragonrt.control.verifier import Kind, TrainedPair, Verifier
from dragonrt.errors import DragonError
from dragonrt.node.resources import verifier_of


def trained(kind: Kind = "sprinter") -> Verifier:
    pair = TrainedPair("small one", "large one", "aaaa", "bbbb")
    return Verifier(kind, "hidden", pair, np.zeros(3, np.float32), 0.0)


def test_a_verifier_is_for_its_two_models_only() -> None:
    given = trained()
    assert verifier_of("aaaa", "bbbb", given, "sprinter") is given
    stops = trained("specdec++")
    assert verifier_of("aaaa", "bbbb", stops, "specdec++") is stops
    for draft, target in (("cccc", "bbbb"), ("aaaa", "cccc")):
        with pytest.raises(DragonError):
            verifier_of(draft, target, given, "sprinter")
    with pytest.raises(DragonError, match="no sprinter verifier"):
        verifier_of("aaaa", "bbbb", None, "sprinter")
    with pytest.raises(DragonError, match="specdec"):
        verifier_of("aaaa", "bbbb", stops, "sprinter")
