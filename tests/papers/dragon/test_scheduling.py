"""`scheduling`: acceptance sequences as recorded and as replayed, and what the points say."""

from functools import partial
from pathlib import Path

import pytest

from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.samplers import Sampler
from scripts.papers.acceptances import Acceptances
from scripts.papers.dragon import recorded_acceptance
from scripts.papers.dragon.scheduling import SCHEDULERS, TOKENS, SchedulingCase, measure
from scripts.papers.model_sides import document_side, run
from scripts.papers.sample_sides import LoadedSide, sample_settings
from scripts.papers.virtual_arena import linked


@pytest.mark.slow
def test_sequences_are_recorded_once_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, heard = tmp_path / "acceptances.csv", list[int]()
    recorded = partial(recorded_acceptance.recorded, "dragon-small")
    sequences = recorded((3, 4), 12, kept, heard.append)
    assert heard == [1, 2]
    assert all(len(each.device) == len(each.cloud) == 12 for each in sequences)
    assert sequences[0] != sequences[1]
    again = recorded((3,), 12, tmp_path / "other.csv", heard.append)
    assert again == sequences[:1]

    def nothing(*_: object) -> dict[int, Acceptances]:
        raise AssertionError("what is kept needs no recording")

    monkeypatch.setattr(recorded_acceptance, "_record", nothing)
    assert recorded((4, 3), 12, kept, heard.append) == sequences[::-1]
    for missing, tokens in ((5, 12), (3, 13)):
        with pytest.raises(AssertionError, match="no recording"):
            recorded((missing,), tokens, kept, heard.append)
    kept.write_text("source,sequence\n1,2\n")
    with pytest.raises(AssertionError, match="no recording"):
        recorded((3,), 12, kept, heard.append)


@pytest.mark.slow
def test_what_is_accepted_does_not_depend_on_the_scheduler() -> None:
    question = "What do you need to make lemon cake?"
    device = LoadedSide.load(sample_settings("device"))
    cloud = document_side(LoadedSide.opened(sample_settings("cloud"), device.model), 0.01)

    async def decided(aggregator: Aggregator) -> Acceptances:
        asked = Question(prompt=question, seed=5, sampler=Sampler(0.8), max_tokens=12)
        async with linked(document_side(device, 0.01), [cloud]) as arena:
            given = await arena.ask(asked, DragonSettings(aggregator=aggregator, follow=False))
        return recorded_acceptance.acceptances([event for _, event in given.answer.decisions])

    one, other = (run(decided(each), virtual=True) for each in (Aggregator.SYNC, Aggregator.BOTH))
    assert len(one.device) == 12
    assert one == other


@pytest.mark.slow
def test_a_slow_device_is_the_floor_and_a_switching_scheduler_beats_fixed_ones() -> None:
    stretches = Acceptances(
        (True,) * 40 + (True, False) * 20 + (True,) * 20, (True, False) * 20 + (True,) * 60
    )
    floor = measure(SchedulingCase(120, 30, 0, "device", 1, stretches))
    assert floor["seconds"] == pytest.approx(TOKENS * 0.12, rel=0.02)
    seconds = {
        name: measure(SchedulingCase(30, 30, 300, name, 1, stretches))["seconds"]
        for name in SCHEDULERS
    }
    assert seconds["leaderless"] < seconds["greedy"] < min(seconds["device"], seconds["cloud"])
    assert seconds["leaderless"] > TOKENS * 0.03
