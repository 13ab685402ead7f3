"""What DRAGON's scheduler expects, over delays of real models that were recorded (DRAGON §5.2)."""

from collections.abc import Iterator
from statistics import median

import pytest

from dragonrt.control.profiler import DecodeProfile
from dragonrt.control.scheduler import Aggregator
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.question import GREEDY, Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.side import Side
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script, SimulatedContext
from dragonrt.traces.events import Drafted, LatencyEstimated, Record
from scripts.bench.profiler import SIDES, Foresight, foresight
from scripts.papers.virtual_arena import played

RECORDED_MS: dict[Side, str] = {
    # dragon-small over two documents on either side of one machine, which had much else to do.
    "device": "21 38 22 21 17 22 40 39 27 21 23 19 20 13 29 15 26 24 21 22 29 22 22 19 20 13 22 24 "
    "24 10 23 4 12 21 43 31 29 23 24",
    "cloud": "21 15 4 26 37 37 27 18 19 18 32 25 22 17 17 18 25 21 31 37 41 40 22 32 41 21 32 25 "
    "39 45 19 33 32 35 35 28 23 18 25",
}
MEASURED_ALONE = DecodeProfile(k_a=3.7, k_b=386e3, k_c=0.012)
"""Over whole contexts, as `dragonrt profile` found it on that machine."""
RTT_S = 0.1
SCRIPT = Script(5, sharpness=2.0, disagreement=0.5, stop=0.0)


def delays(side: Side, start: int) -> Iterator[float]:
    """The recorded ones over and over, from a place of their own for every answer."""
    found = [int(each) / 1e3 for each in RECORDED_MS[side].split()]
    while True:
        yield from found[start:]
        start = 0


def answered(seed: int, *profiled: Side) -> Foresight:
    kept: dict[Side, list[Record]] = {"device": [], "cloud": []}

    def simulated(side: Side) -> SimulatedSide:
        took = delays(side, seed % 10)
        return SimulatedSide(
            side,
            lambda _: SCRIPT,
            make_context=lambda model, _: SimulatedContext(model, took.__next__),
            sinks=(kept[side].append,),
            profile=MEASURED_ALONE if side in profiled else None,
        )

    played(
        Question(seed=seed, sampler=GREEDY, max_tokens=40),
        DragonSettings(aggregator=Aggregator.GREEDY, follow=False),
        *map(simulated, SIDES),
        link=LinkProfile(latency_s=RTT_S / 2),
    )
    found = foresight(kept["device"], kept["cloud"], RTT_S)
    assert found is not None
    return found


@pytest.mark.parametrize("profiled", [(), ("cloud",)], ids=str)
def test_estimates_are_within_a_tenth_of_what_comes_true(profiled: tuple[Side, ...]) -> None:
    """Delays vary by a third, and so does one estimate: over a few answers it is right."""
    found = [answered(seed, *profiled) for seed in range(8)]
    for side in SIDES:
        assert median(each.decode[side] for each in found) == pytest.approx(1.0, abs=0.1)
    assert all(each.rtt == pytest.approx(1.0, abs=0.02) for each in found)
    assert median(each.lost for each in found) < 0.005


def test_estimates_are_compared_with_the_drafts_that_needed_a_forward() -> None:
    def of(side: Side, *events: Drafted | LatencyEstimated) -> list[Record]:
        return [Record(0.0, side, 1, event) for event in events]

    drafted = [Drafted(step, 0, seconds, 0.0, b"") for step, seconds in ((0, 0.0), (1, 0.2))]
    early, late = (
        LatencyEstimated(step, difference, 0.1, 0.9, 0.5, 0.4, 0.1)
        for step, difference in ((1, 0.1), (3, -0.1))
    )
    found = foresight(of("device", *drafted, early), of("cloud", *drafted, late), 0.2)
    assert found is not None
    assert found.decode == {"device": pytest.approx(2.0), "cloud": pytest.approx(0.5)}
    assert (found.rtt, found.choices) == (0.5, 2)
    assert found.wrong == 1, "with equal delays, the side whose drafts fail aggregates"
    assert found.lost == pytest.approx((0.3 - 0.22) / (2 * 0.22))
    assert foresight(of("device", *drafted, early), of("cloud", *drafted), 0.2) is None
