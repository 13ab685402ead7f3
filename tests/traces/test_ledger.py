"""What left the device: told by its events, in every mode."""

from collections.abc import Sequence

from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import (
    AnswerOpened,
    BlockJudged,
    BlockOutrun,
    BlockSent,
    Disclosed,
    Event,
    QuestionSent,
    Record,
    TokenDecided,
)
from dragonrt.traces.statistics import ledger


def counted(mode: str, codec: str, *events: Event) -> AnswerCounts:
    opened = AnswerOpened(mode, 0, {"codec": codec})
    return AnswerCounts.of(Record(1.0, "device", 1, each) for each in (opened, *events))


def decided(
    step: int,
    token: int,
    evidence: float | None = None,
    files: Sequence[float] = (),
    *,
    withheld: bool = False,
) -> TokenDecided:
    return TokenDecided(
        step, token, None, None, "own", 0.0, 0.5, None, evidence, tuple(files), withheld
    )


def test_drafts_that_came_to_nothing_left_the_device_all_the_same() -> None:
    found = counted(
        "dragon",
        "topp:0.8",
        QuestionSent(30, 0),
        Disclosed(0, 5, True),
        Disclosed(1, 6, True),
        decided(0, 5, 1.5, [1.0, 0.25]),
        decided(1, 7, 2.0, [2.0, 0.0]),
        Disclosed(1, 7, True),
        Disclosed(2, 8, True),  # beyond the end
        QuestionSent(30, 12, 2),
        decided(2, 9),
    )
    assert ledger(found) == {
        "question_bytes": 60,
        "history_bytes": 12,
        "tokens_sent": 6,
        "distributions_sent": 4,
        "tokens_not_in_answer": 2,
        "tokens_withheld": 0,
        "revealed_bits": None,
        "evidence_bits": 3.5,
        "evidence_of_tokens": 2,
        "evidence_bits_of_files": [3.0, 0.25],
    }


def test_what_is_withheld_is_counted_and_was_not_sent() -> None:
    found = counted(
        "dragon", "topp:0.8", Disclosed(0, 5), decided(0, 5), decided(1, 6, withheld=True)
    )
    assert (found.tokens_sent, found.unused, found.tokens_withheld) == (1, 0, 1)
    assert ledger(found)["evidence_bits"] is None


def test_blocks_send_distributions_or_none() -> None:
    for sends in (False, True):
        blocks = (
            BlockSent(1, 0, 4, 80, 0.1, distributions=sends),
            BlockSent(2, 4, 4, 80, 0.1, decided=2, distributions=sends),
            BlockJudged(1, 4, 3, 7, 0.1, 0.1),
        )
        found = counted("speculative", "ids", *blocks)
        assert (found.tokens_sent, found.distributions_sent, found.unused) == (10, 8 * sends, 5)
    assert counted("speculative", "ids", *blocks, BlockOutrun(2, 3)).unused == 2
