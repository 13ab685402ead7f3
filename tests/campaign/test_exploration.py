"""The search for defects: it finds none, it finds those put in, and a seed repeats a run."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dragonrt.modes import MODES
from dragonrt.modes.blocks import ReadBlock
from dragonrt.modes.dragon.decision import Decision
from dragonrt.modes.dragon.drafts import DraftQueue
from dragonrt.modes.dragon.planner import Planner
from dragonrt.modes.federated import machine as federated
from dragonrt.modes.federated.machine import Coordinator
from dragonrt.modes.federated.settings import Weighing
from dragonrt.modes.mode import Finish, Input, Measured, Prediction, Received
from dragonrt.modes.peering import Peering
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.machine import SpeculativeDrafting, SpeculativeJudging
from dragonrt.modes.sprinter import SprinterDrafting
from dragonrt.modes.verifier import BlockVerifier
from dragonrt.node.answers.driver import Driver
from dragonrt.node.connections.peer import Peer
from dragonrt.privacy import guards
from dragonrt.privacy.evidence import SideDraft
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import VerifyResult
from dragonrt.side import Side
from dragonrt.testing.faults import Schedule
from dragonrt.wire.reasons import End
from scripts.campaign.exploration import explore, explore_many, explore_one
from scripts.campaign.liveness import bound_s
from scripts.campaign.scenario import Scenario


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_no_run_violates_anything(mode: str) -> None:
    """A sample of what a campaign explores."""
    found = explore(range(16), mode)
    assert [run for run in found if run.violation is not None] == []
    assert 0.15 < max(run.slowest for run in found) < 1, "the bound of liveness says something"


@pytest.mark.parametrize(("mode", "seed"), [("dragon", 1009118), ("speculative", 8001949)])
def test_runs_that_once_violated_something_do_not(mode: str, seed: int) -> None:
    """1009118: one answer's drafts delay another's first message over a link of 50 kbit/s.

    They do so for longer than a mute cloud is waited for. Going on alone is right then; the
    invariant said otherwise.

    8001949: a device's third question waited until the cloud had read one of the first two.
    """
    for scenario in (Scenario.draw(seed, mode), Scenario.draw_plain(seed, mode)):
        assert explore_one(scenario).violation is None


def test_the_bound_counts_questions_that_are_read_in_turn() -> None:
    """Those of one device, two at a time; nothing else in the bound depends on their number."""
    first = Scenario.draw(0, "sprinter").requests[0]
    link = Schedule(1, device_prepare_s=0.5, cloud_prepare_s=0.4)

    def limit_s(*devices: int, link: Schedule = link) -> float:
        requests = tuple(replace(first, device=device) for device in devices)
        return bound_s(Scenario("sprinter", 0, ((link,), (link,)), requests), requests[0])

    assert limit_s(0) == limit_s(0, 0) == limit_s(0, 0, 1, 1)
    assert limit_s(0, 0, 0) == limit_s(0, 0, 0, 0) == pytest.approx(limit_s(0) + 2 * (0.8 - 0.5))
    slow = replace(link, device_prepare_s=3.0)  # a device reads all of its questions at once
    assert limit_s(0, 0, 0, link=slow) == limit_s(0, link=slow)


def test_all_modes_are_drawn_and_each_is_the_run_of_its_name() -> None:
    drawn = [Scenario.draw(seed) for seed in range(60)]
    assert {scenario.mode for scenario in drawn} == set(MODES)
    assert drawn == [Scenario.draw(seed, each.mode) for seed, each in enumerate(drawn)]


def test_a_seed_repeats_its_run() -> None:
    first, again = explore(range(7, 12)), [explore_one(Scenario.draw(n)) for n in range(7, 12)]
    assert first == again
    assert len({run.duration_s for run in first}) > 3


@pytest.mark.slow
def test_processes_find_what_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.campaign.exploration.BATCH", 4)
    assert explore_many(6, 0, "sprinter") == explore(range(6), "sprinter")


# Defects that are put in are found, each by a seed.


def first_violation(mode: str, runs: int, expected: str, first: int = 0) -> str | None:
    """A violation of that kind, sought from a seed on that once had it, over all of them."""
    for seed in (*range(first, runs), *range(first)):
        violation = explore_one(Scenario.draw(seed, mode)).violation
        if violation is not None and expected in violation:
            return violation
    return None


def stale_drafts(queue: DraftQueue, step: int, prefix_hash: int) -> SideDraft | None:
    """The defect of DRAGON's reference: a draft is known by its step alone."""
    lines = queue._drafts.get(step)
    return next(iter(lines.values())) if lines else None


def swapped_sides() -> Callable[..., Any]:
    """Each side takes itself for the device."""
    right = Decision._mixed

    def swapped(decision: Decision, *drafts: SideDraft, **how: Any) -> Any:
        return right(decision, *(drafts if decision._on_device else drafts[::-1]), **how)

    return swapped


def numbers_in_order() -> Callable[..., Any]:
    """Noise that is consumed, instead of keyed by the step."""
    right, used = Noise._stream, itertools.count()

    def stream(noise: Noise, purpose: Any, side: Side | None, step: int) -> Any:
        return right(noise, purpose, side, next(used))

    return stream


def noise_of_the_first_step(
    judging: SpeculativeJudging, block: ReadBlock, said: Sequence[Prediction]
) -> VerifyResult:
    p = [judging._rule.shape(each.p) for each in said]
    return judging._rule.verify(0, block.tokens, block.q, p.__getitem__)


def of_all_members(
    weighing: Weighing, weights: Sequence[float], relevances: Sequence[float | None]
) -> tuple[float, ...]:
    """Weights whose sum is below 1 where somebody is missing."""
    pairs = zip(weights, relevances, strict=True)
    return tuple(w / sum(weights) if relevance is not None else 0.0 for w, relevance in pairs)


def newest_first() -> Callable[..., Any]:
    """A verdict is taken for the block that was sent last."""
    right = SpeculativeDrafting.take_verdict

    def take_verdict(drafting: SpeculativeDrafting, accepted: int, token: int) -> Any:
        drafting.sent.rotate(1)
        return right(drafting, accepted, token)

    return take_verdict


def one_less(question: Question, accepted: tuple[int, ...], *_: Any) -> Question:
    """The newest decision is lost where a session begins again."""
    return replace(question, accepted=accepted[:-1])


def rewound_too_far(drafting: SprinterDrafting) -> None:
    """What passed since the cloud's last word is forgotten with what is drafted."""
    drafting.prefix.cut(drafting._known)
    drafting.decided = drafting._known


def never(*_: Any) -> None:
    """A wait without a bound."""


def asleep() -> Callable[..., Any]:
    """A message wakes nobody: work begins at the next occasion, if there is one."""
    right = Driver.feed

    def feed(driver: Driver, *inputs: Input) -> None:
        messages = [each for each in inputs if isinstance(each, Received | Measured)]
        for happened in messages:
            driver._carry_out(driver.mode.handle(happened, driver._loop.time()))
        if not messages:
            right(driver, *inputs)

    return feed


@property  # type: ignore[misc]
def too_far(planner: Planner) -> int:
    return min(planner._drafts.decided + planner._run_ahead + 1, planner._max_tokens) - 1


def never_closed(peer: Peer, *_: Any, **__: Any) -> None:
    """Sessions stay open on the other side."""


def gives_up() -> Callable[..., Any]:
    """Who is alone stops at once."""
    right = Peering.leave_alone

    def leave_alone(peering: Peering, end: End, now: float) -> None:
        right(peering, end, now)
        peering._mode._end(Finish.LENGTH)

    return leave_alone


def all_that_wait() -> Callable[..., Any]:
    """Blocks on wrong guesses are verified like others."""
    right = BlockVerifier._follow

    def follow(verifier: BlockVerifier, waiting: Any, now: float) -> bool:
        right(verifier, waiting, now)
        return True

    return follow


def no_bits(*_: Any) -> float:
    """A guard that sees nothing."""
    return 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "broken", "name", "defect", "expected", "first"),
    [
        ("dragon", DraftQueue, "get", stale_drafts, "where the oracle gives", 1),
        ("dragon", Decision, "_mixed", swapped_sides(), "where the oracle gives", 1),
        ("dragon", Noise, "_stream", numbers_in_order(), "where the oracle gives", 1),
        ("dragon", guards, "WATCHED_BITS", 20.0, "the oracle gives", 43),
        ("dragon", guards, "steering_bits", no_bits, "withheld other tokens", 47),
        ("dragon", guards, "revealed_bits", no_bits, "where the oracle gives", 43),
        ("speculative", Noise, "_stream", numbers_in_order(), "where the oracle gives", 1),
        (
            "speculative",
            SpeculativeJudging,
            "answer",
            noise_of_the_first_step,
            "the oracle gives",
            4,
        ),
        ("federated", federated, "round_weights", of_all_members, "other weights", 0),
        ("speculative", SpeculativeDrafting, "take_verdict", newest_first(), "the oracle gives", 1),
        ("dragon", Question, "resumed", one_less, "later than", 30),
        ("speculative", Question, "resumed", one_less, "later than", 11),
        ("sprinter", SprinterDrafting, "rewind", rewound_too_far, "was decided where", 17),
        ("dragon", Peering, "due", never, "hang", 28),
        ("sprinter", Peering, "due", never, "hang", 14),
        ("federated", Coordinator, "deadline", never, "hang", 42),
        ("dragon", Driver, "feed", asleep(), "later than", 11),
        ("federated", Driver, "feed", asleep(), "FederationError", 0),
        ("dragon", Planner, "limit", too_far, "beyond the bound", 1),
        ("dragon", Peer, "close", never_closed, "are left", 0),
        ("federated", Peer, "close", never_closed, "are left", 0),
        ("speculative", Peering, "leave_alone", gives_up(), "the answer ended with", 27),
        ("speculative", BlockVerifier, "_follow", all_that_wait(), "broke the protocol", 20),
    ],
)
def test_a_defect_is_found(
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    broken: Any,
    name: str,
    defect: Any,
    expected: str,
    first: int,
) -> None:
    monkeypatch.setattr(broken, name, defect)
    monkeypatch.setattr("scripts.campaign.exploration.LONGEST_RUN_S", 600.0)
    assert first_violation(mode, 60, expected, first) is not None


def test_a_run_that_computes_without_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right, first = Planner.extend, iter([True])

    def spins(planner: Planner) -> None:
        if next(first, False):
            while True:
                pass
        right(planner)

    monkeypatch.setattr("scripts.campaign.exploration.LONGEST_COMPUTING_S", 0.05)
    monkeypatch.setattr(Planner, "extend", spins)
    assert first_violation("dragon", 1, "computes for more than") is not None
