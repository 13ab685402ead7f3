"""Costs of answers, their equality with an oracle's, and the table of both."""

from dataclasses import replace

import pytest
from rich.console import Console

from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.answers.client_session import Answer
from dragonrt.service.comparison import (
    ALGORITHM1_GREEDY,
    COUPLED_GREEDY,
    LEADERLESS,
    SYNCHRONOUS,
    SYNCHRONOUS_ALGORITHM1,
    MeasuredAnswer,
    Method,
    comparison_table,
    costs,
)
from dragonrt.traces.events import Record, TokenDecided


def answer(
    *times_s: float,
    asked_s: float = 10.0,
    tokens: tuple[int, ...] = (),
    device: bool | None = None,
    cloud: bool | None = None,
) -> MeasuredAnswer:
    """An answer whose tokens were decided at these times after the question."""
    named = tokens or tuple(range(len(times_s)))
    records = [
        Record(
            asked_s + time_s, "device", 1, TokenDecided(step, token, device, cloud, "own", 0.0, 0.5)
        )
        for step, (token, time_s) in enumerate(zip(named, times_s, strict=True))
    ]
    return MeasuredAnswer(
        Answer(question=Question(), settings=DragonSettings(), records=records, asked_s=asked_s)
    )


def test_costs_are_pooled_over_answers() -> None:
    spent = costs([answer(0.3, 0.4, 0.5), answer(0.2, 0.9, asked_s=50.0)])
    assert spent["ms_per_token"] == pytest.approx(1000 * (0.5 + 0.9) / 5)
    assert spent["ms_between_tokens"] == pytest.approx(1000 * (0.2 + 0.7) / 3)
    assert spent["first_token_ms"] == pytest.approx(250)
    first = answer(0.1, 0.2, 0.3, device=True, cloud=False)
    second = answer(0.1, device=False, cloud=True)
    first.answer.bytes_sent, first.answer.bytes_received = 100, 200
    second.answer.bytes_sent = 60
    spent = costs([first, second])
    assert spent["accepted_device"] == pytest.approx(3 / 4)
    assert spent["accepted_cloud"] == pytest.approx(1 / 4)
    assert spent["bytes_per_token"] == pytest.approx(360 / 4)


def test_what_was_not_measured_is_none() -> None:
    spent = costs([answer(0.3)])
    assert spent["ms_per_token"] == pytest.approx(300)
    unknown = ("ms_between_tokens", "accepted_device", "accepted_cloud")
    assert [spent[each] for each in unknown] == [None] * 3


@pytest.mark.parametrize(
    ("method", "rule", "aggregator", "follow"),
    [
        (SYNCHRONOUS, "coupled", Aggregator.SYNC, False),
        (SYNCHRONOUS_ALGORITHM1, "algorithm1", Aggregator.SYNC, False),
        (ALGORITHM1_GREEDY, "algorithm1", Aggregator.GREEDY, False),
        (COUPLED_GREEDY, "coupled", Aggregator.GREEDY, True),
        (LEADERLESS, "coupled", Aggregator.BOTH, True),
    ],
)
def test_a_method_changes_nothing_else(
    method: Method, rule: str, aggregator: Aggregator, follow: bool
) -> None:
    how = DragonSettings(codec="topp:0.9", run_ahead=7)
    changed = replace(how, rule=rule, aggregator=aggregator, follow=follow)
    assert method.settings(how) == changed
    assert not method.settings(DragonSettings(follow=False)).follow


def test_the_table_fits_into_80_columns_and_cuts_no_number() -> None:
    slow = replace(answer(1.2344, 2.3331, tokens=(5, 6)).answer, bytes_sent=24691)
    once = answer(1.2344, tokens=(5,))
    found = {method: [MeasuredAnswer(slow)] for method in (SYNCHRONOUS, COUPLED_GREEDY, LEADERLESS)}
    console = Console(width=80, no_color=True)
    with console.capture() as captured:
        console.print(
            comparison_table(
                {**found, ALGORITHM1_GREEDY: [once], SYNCHRONOUS_ALGORITHM1: [MeasuredAnswer(slow)]}
            )
        )
    lines = captured.get().splitlines()
    assert len(lines) == 6
    assert lines[2].split() == (
        ["synchronous", "1166.5", "1098.7", "1234", "-/-", "12346", "oracle"]
    )
    assert lines[3].split()[3:] == ["1234.4", "-", "1234", "-/-", "0", "0", "of", "1"]
    assert lines[5].split()[-3:] == ["1", "of", "1"]
