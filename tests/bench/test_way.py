"""A draft becomes a token in few calls: a ceiling, so that what is off stays off the way."""

from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.settings import DragonSettings
from scripts.bench.way import way, ways
from scripts.lab.harness import measured

CALLS, FILES, DRAFT_CALLS = 90, 22, 120


def test_a_draft_becomes_a_token_in_few_calls_and_files() -> None:
    row, drafted = [row for row in measured(way) if row.get("mode", "dragon") == "dragon"]
    assert row["tokens"] > 30
    assert row["calls"] <= CALLS
    assert row["files"] <= FILES
    assert drafted["draft_calls"] <= DRAFT_CALLS


def test_what_is_on_is_on_the_way() -> None:
    default, placed = (
        [name for each in ways(DragonSettings(aggregator=aggregator)) for name in each]
        for aggregator in (Aggregator.BOTH, Aggregator.GREEDY)
    )
    assert not [name for name in default if name.startswith("modes/dragon/placement")]
    assert [name for name in placed if name.startswith("modes/dragon/placement")]
