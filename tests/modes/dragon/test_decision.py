"""What two drafts of a step come to."""

from dataclasses import replace

import numpy as np
import pytest

from dragonrt.control.scheduler import Aggregator
from dragonrt.distributions import CodecError, Step, codec, encode_distribution
from dragonrt.modes.dragon.decision import Decision
from dragonrt.modes.dragon.settings import DragonResources, DragonSettings, DragonSetup
from dragonrt.modes.question import Question
from dragonrt.privacy.evidence import SideDraft

CODE = codec("dense:fp32", 3)


def draft(p: list[float], relevance: float) -> SideDraft:
    payload = encode_distribution(CODE, CODE.quantize(np.array(p), Step(2)))
    return SideDraft(2, 9, int(np.argmax(p)), payload, relevance, 0.0)


def deciding(rule: str = "coupled", aggregator: Aggregator = Aggregator.BOTH) -> Decision:
    how = DragonSettings(rule=rule, aggregator=aggregator, codec=CODE.name)
    return Decision(DragonSetup("device", Question(), how, DragonResources(vocabulary=3)))


@pytest.mark.parametrize(("rule", "expects"), [("coupled", False), ("algorithm1", True)])
def test_a_step_is_mixed_by_a_head_that_decodes_what_it_needs(rule: str, expects: bool) -> None:
    """The share is the device's part of the target's probability; Eq. 5 only where it is wanted."""
    decision = deciding(rule, Aggregator.GREEDY)
    own = draft([0.5, 0.1, 0.4], 0.0)
    own = replace(own, distribution=CODE.decode(own.payload))
    theirs = draft([0.1, 0.3, 0.6], float(np.log(3)))
    assert decision.at_once(own, theirs) is None
    work = decision.work(own, theirs, "cloud")
    found = work.postprocess(())
    assert found.token == 2  # 0.25 * 0.4 + 0.75 * 0.6
    assert found.mixed.share == pytest.approx(0.1 / 0.55, abs=1e-6)
    assert (found.mixed.expected is not None) is expects
    with pytest.raises(CodecError):
        decision.work(own, SideDraft(2, 9, 1, b"\xff\xff", 0.0, 0.0), "cloud").postprocess(())


def test_acceptance_is_what_eq_5_expects_or_what_happened_not_both() -> None:
    for rule, aggregator, known in (
        ("coupled", Aggregator.BOTH, {"device": 0.55, "cloud": 0.5}),
        ("algorithm1", Aggregator.GREEDY, {"device": 0.5, "cloud": 0.45}),
    ):
        decision = deciding(rule, aggregator)
        decision.compared(True, None)
        decision.compared(None, 0.0, expected=True)
        assert decision.acceptance == pytest.approx(known)
