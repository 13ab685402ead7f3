"""Drafts: found by step and prefix hash only, bounded; the mixture of two, and who knows it."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.control.scheduler import Aggregator
from dragonrt.distributions import CodecError, Distribution, Step, codec
from dragonrt.modes.dragon.decision import Decision, ranked
from dragonrt.modes.dragon.drafts import BYTES_PER_STEP, PREFIXES_PER_STEP, DraftQueue, Redacted
from dragonrt.modes.dragon.settings import DragonResources, DragonSettings, DragonSetup
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.prefix import TokenPrefix
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.privacy.disclosure import redacted
from dragonrt.privacy.evidence import SideDraft
from dragonrt.sampling.samplers import Sampler
from dragonrt.settings import assemble
from tests.oracles.dragon import read_by_cloud


def draft(step: int, prefix_hash: int, token: int = 1, payload: bytes = b"") -> SideDraft:
    return SideDraft(step, prefix_hash, token, payload, 0.0, 0.0)


def test_drafts_are_found_by_step_and_hash_only() -> None:
    queue = DraftQueue(window=8)
    queue.put(draft(3, 111))
    assert queue.get(3, 111) == draft(3, 111)
    assert queue.get(3, 222) is None
    assert queue.get(2, 111) is None


def test_decided_steps_are_dropped_and_late_drafts_with_them() -> None:
    queue = DraftQueue(window=8)
    queue.put(draft(0, 5))
    queue.decide(0)
    assert queue.get(0, 5) is None
    queue.put(draft(0, 5))
    assert queue.get(0, 5) is None


def test_the_window_moves_with_the_decided_prefix() -> None:
    queue = DraftQueue(window=2)
    assert queue.end > 1
    assert queue.end <= 2
    queue.decide(0)
    assert queue.end > 2
    queue.clear()
    assert queue.end > 2
    assert queue.end <= 3
    assert DraftQueue(window=2, decided=7).end > 8


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=200))
def test_a_queue_is_bounded_and_keeps_the_newest_lines(puts: list[tuple[int, int]]) -> None:
    queue = DraftQueue(window=10)
    for step, prefix_hash in puts:
        queue.put(draft(step, prefix_hash))
    for step in range(10):
        newest = list(dict.fromkeys(h for s, h in reversed(puts) if s == step))
        for prefix_hash in newest[:PREFIXES_PER_STEP]:
            assert queue.get(step, prefix_hash) is not None
        for prefix_hash in newest[PREFIXES_PER_STEP:]:
            assert queue.get(step, prefix_hash) is None


def test_of_long_drafts_a_step_keeps_fewer_and_always_the_newest() -> None:
    queue = DraftQueue(window=8)
    third = bytes(BYTES_PER_STEP // 3)
    for number in range(5):
        queue.put(draft(2, number, payload=third))
    assert [number for number in range(5) if queue.get(2, number)] == [2, 3, 4]
    queue.put(draft(2, 9, payload=bytes(2 * BYTES_PER_STEP)))
    assert [number for number in (2, 3, 4, 9) if queue.get(2, number)] == [9]
    queue.put(draft(2, 1))
    assert [number for number in (1, 9) if queue.get(2, number)] == [1]


MARKER = (3, 4)


def test_the_place_ahead_follows_the_line_wherever_it_goes() -> None:
    """Nothing may be left there of a text that the line went along before."""
    chance = random.Random(5)
    line, decisions = TokenPrefix(0), list[tuple[int, bool]]()
    told = Redacted(line, TokenPrefix(0), 0, MARKER)
    for _ in range(300):
        if len(line) == len(decisions) or chance.random() < 0.5:
            line.append(chance.randrange(3))
        else:
            line.replace_from(chance.randrange(len(decisions), len(line)), [chance.randrange(3)])
        for step in range(len(decisions), len(line) + 1):
            ahead = line.tokens[len(decisions) : step]
            read = TokenPrefix(0, [*read_by_cloud(decisions, MARKER), *ahead])
            assert told.place(step) == (len(read), read.hash)
        if chance.random() < 0.2:
            decisions.append((line.tokens[len(decisions)], chance.random() < 0.4))
            told.append(*decisions[-1])
            assert told.prefix.tokens[: told.length] == redacted(decisions, MARKER)
            assert redacted(decisions, MARKER) == read_by_cloud(decisions, MARKER)


CODE = codec("dense:fp32", 3)


def drafted(p: list[float], relevance: float) -> SideDraft:
    payload = CODE.encode(CODE.quantize(np.array(p), Step(2)))
    return SideDraft(2, 9, int(np.argmax(p)), payload, relevance, 0.0)


def deciding(rule: str = "coupled", aggregator: Aggregator = Aggregator.BOTH) -> Decision:
    how = DragonSettings(rule=rule, aggregator=aggregator, codec=CODE.name)
    return Decision(DragonSetup("device", Question(), how, DragonResources(vocabulary=3)))


@pytest.mark.parametrize(("rule", "expects"), [("coupled", False), ("algorithm1", True)])
def test_a_step_is_mixed_by_a_head_that_decodes_what_it_needs(rule: str, expects: bool) -> None:
    """The share is the device's part of the target's probability; Eq. 5 only where it is wanted."""
    decision = deciding(rule, Aggregator.GREEDY)
    own = drafted([0.5, 0.1, 0.4], 0.0)
    own = replace(own, distribution=CODE.decode(own.payload))
    theirs = drafted([0.1, 0.3, 0.6], float(np.log(3)))
    assert decision.at_once(own, theirs) is None
    work = decision.work(own, theirs, "cloud")
    found = work.postprocess(())
    assert found.token == 2  # 0.25 * 0.4 + 0.75 * 0.6
    assert found.mixed.share == pytest.approx(0.1 / 0.55, abs=1e-6)
    assert (found.mixed.expected is not None) is expects
    with pytest.raises(CodecError):
        decision.work(own, SideDraft(2, 9, 1, b"\xff\xff", 0.0, 0.0), "cloud").postprocess(())


def test_acceptance_is_either_expected_by_eq_5_or_observed() -> None:
    for rule, aggregator, known in (
        ("coupled", Aggregator.BOTH, {"device": 0.55, "cloud": 0.5}),
        ("algorithm1", Aggregator.GREEDY, {"device": 0.5, "cloud": 0.45}),
    ):
        decision = deciding(rule, aggregator)
        decision.compared(True, None)
        decision.compared(None, 0.0, expected=True)
        assert decision.acceptance == pytest.approx(known)


# The target's probabilities: who knows them, and what they are.


GREEDY = Sampler(temperature=0.0)


def known_draft(p: list[float], relevance: float) -> SideDraft:
    dense = np.array(p)
    token = int(dense.argmax())
    return SideDraft(0, 0, token, b"", relevance, 0.0, Distribution.from_dense(dense))


def test_they_are_those_of_the_mixture() -> None:
    own, theirs = (
        known_draft([0.7, 0.3, 0.0, 0.0], 0.0),
        known_draft([0.0, 0.5, 0.4, 0.1], np.log(3)),
    )
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
    assert (settings.no_probabilities_because is None) == known
