"""How answers look: tints, notices between the words, sources, the line of costs."""

import io

import pytest
from rich.console import Console

from dragonrt.chat.conversation import Reply
from dragonrt.chat.view import AnswerView, carrier, cost_line, title
from dragonrt.runtime import outcome
from dragonrt.runtime.counts import Counts
from dragonrt.runtime.modes.dragon import Answer
from dragonrt.runtime.modes.sprinter import SprinterCounts, SprinterPlan
from dragonrt.runtime.outcome import Decision, Finish
from dragonrt.runtime.plan import Plan
from dragonrt.sampling.samplers import Sampler
from dragonrt.wire.messages import Source

HALF = Decision(0, 5, 10.1, 0.5, None)


def reply(temperature: float = 0.0, finish: Finish = Finish.STOP) -> Reply[Answer]:
    answer = Answer(
        plan=Plan(seed=7, sampler=Sampler(temperature)),
        decisions=[HALF, Decision(1, 6, 10.15, 1.0, 0), Decision(2, 7, 10.2, 0.0, None)],
        finish=finish,
        device_sources=(Source("Some words of it…", "notes/tom.txt", 0.8),),
        cloud_sources=(Source("The Vardo ferry", "vardo_ferry.md", 0.25),),
        counts=Counts(own_accepted=3, own_compared=3, other_accepted=1, other_compared=2),
        asked_s=10.0,
        bytes_sent=120,
        bytes_received=30,
    )
    return Reply("?", "yes", answer)


def console(**options: object) -> Console:
    return Console(file=io.StringIO(), width=100, highlight=False, **options)  # type: ignore[arg-type]


def written(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


@pytest.mark.parametrize(
    ("share", "side"),
    [
        (1.0, "device"),
        (0.75, "device"),
        (0.74, "both"),
        (0.26, "both"),
        (0.25, "cloud"),
        (0, "cloud"),
    ],
)
def test_a_token_counts_as_a_sides_from_three_quarters_on(share: float, side: str) -> None:
    assert carrier(Decision(0, 1, 0.0, share, None)) == side


def test_words_are_tinted_by_side_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    target = console(force_terminal=True, color_system="standard")
    view = AnswerView(target)
    for share, text in ((1.0, "mine"), (0.0, "theirs"), (0.5, "ours")):
        view.piece(text, Decision(0, 1, 0.0, share, None))
    assert "\x1b[36mmine\x1b[0m" in written(target)
    assert "\x1b[33mtheirs\x1b[0m" in written(target)
    assert "36mours" not in written(target)
    assert "33mours" not in written(target)


def test_there_are_no_colours_where_nobody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    coloured = console(force_terminal=True)
    plain = console()
    for target in (coloured, plain):
        view = AnswerView(target)
        view.piece("mine", Decision(0, 1, 0.0, 1.0, None))
        view.end(reply())
        assert "\x1b[3" not in written(target)
    assert "\x1b" not in written(plain)


def test_a_notice_has_a_line_of_its_own() -> None:
    target = console()
    view = AnswerView(target)
    view.notice("the cloud was lost")
    view.piece("Yes, ", HALF)
    view.notice("it is back")
    view.piece("no.", HALF)
    view.end_line()
    assert written(target) == "[the cloud was lost]\nYes, \n[it is back]\nno.\n"


def test_an_answer_ends_with_its_sources_and_its_costs() -> None:
    target = console()
    view = AnswerView(target)
    view.piece("yes", HALF)
    view.end(reply())
    assert written(target).splitlines() == [
        "yes",
        "  device 0.80  notes/tom.txt",
        "  cloud  0.25  vardo_ferry.md  The Vardo ferry",
        f"  {cost_line(reply())}",
    ]


def test_the_costs_fit_a_hundred_columns_and_name_what_matters() -> None:
    line = cost_line(reply())
    assert len(line) <= 98
    assert line.startswith("3 tokens | first 100 ms | 50.0 ms/token | accepted device 100 % cloud")
    assert line.endswith("cloud 50 % | 50 bytes/token")
    assert cost_line(reply(temperature=0.5)).endswith("seed 7")
    assert cost_line(reply(finish=Finish.CANCELLED)).startswith("stopped | 3 tokens")


def test_an_approximate_answer_says_so() -> None:
    plan = SprinterPlan(seed=1, sampler=Sampler(0.0))
    counts = SprinterCounts(decided=5, verified=2, judged=2, unverified=3)
    given = outcome.Answer(plan=plan, decisions=[HALF], counts=counts, finish=Finish.STOP)
    assert cost_line(Reply("?", "yes", given)).endswith("approximate: 3 tokens not verified")


def test_an_answer_without_tokens_has_no_times() -> None:
    empty = Reply("?", "", Answer(plan=Plan(seed=1, sampler=Sampler(0.0)), finish=Finish.CANCELLED))
    assert cost_line(empty) == "stopped | 0 tokens | accepted device - cloud -"
    assert empty.statistics()["ms_per_token"] is None


@pytest.mark.parametrize(
    ("name", "given", "shown"),
    [
        ("notes/tom.txt", "Tom said", ""),
        ("vardo_ferry.md", "Vardo Ferry", ""),
        ("a.md", "Something that was cut o…", ""),
        ("a.md", "A sentence of the text.", ""),
        ("a.md", "A title", "A title"),
    ],
)
def test_a_title_is_shown_where_it_says_something_new(name: str, given: str, shown: str) -> None:
    assert title(Source(given, name, 0.5)) == shown
