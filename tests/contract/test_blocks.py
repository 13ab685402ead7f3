"""What ends a block may be anything that was trained: it changes the blocks and not the text."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dragonrt.control.learned import controller
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.models import LinkModel
from dragonrt.link.stream import Stream
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.resources import SpeculativeResources
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.node.answers.client_session import Answer
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.loop import run
from dragonrt.testing.oracle import oracle
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.testing.scripted import Script, ScriptedModel
from dragonrt.traces import events

BLOCKS = SpeculativeSettings(block_tokens=9, pipelined=False, cloud_decodes=False)


def question(seed: int) -> Question:
    return Question(seed=seed, sampler=Sampler(0.8), max_tokens=14, stop_tokens=(0,))


def script(seed: int) -> Script:
    return Script(seed, 16, sharpness=2.0 + seed % 3, disagreement=0.4 * (seed % 4))


def answer(seed: int, settings: SpeculativeSettings, **resources: Any) -> Answer:
    """One answer over a steady link."""

    def emulate(stream: Stream) -> Stream:
        return EmulatedStream(stream, LinkModel(latency_s=0.01), LinkModel(latency_s=0.01))

    async def ask() -> Answer:
        cloud = SimulatedCloud(SimulatedSide("cloud", lambda _: script(seed)))
        side = SimulatedSide("device", lambda _: script(seed))
        async with linked_device(cloud, side, emulate) as device:
            parts = SpeculativeResources(vocabulary=16, **resources)
            asking = device.asking(question(seed), settings, parts)
            given = await asking.ask()
        await cloud.wait_idle()
        return given

    return run(ask())


def right(seed: int, settings: SpeculativeSettings) -> list[int]:
    models = {
        "device": ScriptedModel("device", script(seed)),
        "cloud": ScriptedModel("cloud", script(seed)),
    }
    return oracle(question(seed), settings, models)


def blocks(given: Answer) -> list[int]:
    """The tokens of each block that was sent."""
    told = (record.event for record in given.records)
    return [event.tokens for event in told if isinstance(event, events.BlockSent)]


class HalfSure:
    """Gives every token an even chance to stand."""

    threshold = 0.5

    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        return 0.5


@pytest.mark.parametrize("seed", range(3))
def test_controllers_and_stopping_rules_change_the_blocks_and_not_the_text(seed: int) -> None:
    for name in ("static:3:20", "heuristic:50"):
        settings = replace(BLOCKS, block_tokens=None, controller=name)
        given = answer(seed, settings, controller=controller(name))
        assert given.tokens == right(seed, BLOCKS)
    given = answer(seed, replace(BLOCKS, block_tokens=5, stopping="adaedl"))
    assert max(blocks(given)) <= 5
    assert given.tokens == right(seed, BLOCKS)
    # 1 - 0.5² is above the threshold, 1 - 0.5 is not.
    given = answer(seed, replace(BLOCKS, stopping="specdec++"), verifier=HalfSure())
    assert max(blocks(given)) == 2
    assert given.tokens == right(seed, BLOCKS)


def test_a_controllers_resolution_travels() -> None:
    coarse = SpeculativeSettings(rule="rejection", codec="ksqs:6:40", controller="static:4:17")
    same = SpeculativeSettings(rule="rejection", codec="ksqs:6:17", block_tokens=4, draft="model")
    for seed in range(3):
        given = answer(seed, coarse, controller=controller("static:4:17"))
        assert given.tokens == right(seed, same)
    fine = replace(same, codec="ksqs:6:40")
    assert any(right(seed, same) != right(seed, fine) for seed in range(8))


def test_a_budget_ends_blocks() -> None:
    for seed, budget in ((0, 60), (1, 80), (2, 120)):
        settings = SpeculativeSettings(rule="rejection", codec="ksqs:6:40", budget=budget)
        assert answer(seed, settings).tokens == right(seed, settings)


def test_decisions_tell_drafts_from_the_clouds_tokens() -> None:
    given = answer(3, SpeculativeSettings(block_tokens=3))
    shares = [event.share for _, event in given.decisions]
    judged = (record.event for record in given.records)
    accepted = [event.accepted for event in judged if isinstance(event, events.BlockJudged)]
    assert set(shares) == {0.0, 1.0}
    assert sum(shares) <= sum(accepted)
