"""How answers look: tints, notices between the words, sources, the line of costs."""

import io
from dataclasses import replace

import pytest
from msgspec import structs
from rich.console import Console

from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.mode import Finish
from dragonrt.modes.question import Question
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.node.answers import client_session
from dragonrt.node.answers.citing import Passage
from dragonrt.privacy.disclosure import FLOOR
from dragonrt.privacy.evidence import AnswerEvidence
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.answer import Answer, Piece, Source
from dragonrt.service.view import AnswerView, cost_line, ledger_line, likely_side, title
from dragonrt.traces.events import (
    AnswerClosed,
    AnswerOpened,
    BlockJudged,
    Disclosed,
    Event,
    Noticed,
    NoticeKind,
    Record,
    TokenDecided,
)
from dragonrt.wire import messages as wire
from dragonrt.wire.messages import Attribution

FERRY = wire.Source("The Vardo ferry", "vardo_ferry.md", 0.25, 12.5, "It leaves at 7:40.")
HALF = TokenDecided(0, 5, True, True, "own", 0.1, 0.5)


def record(t: float, event: Event) -> Record:
    return Record(t, "device", 1, event)


def reply(temperature: float = 0.0, finish: Finish = Finish.STOP) -> Answer:
    evidence = AnswerEvidence()
    evidence.decide(0, (6.2,))
    decided = (
        HALF,
        structs.replace(HALF, cloud=False, share=1.0, document=0),
        structs.replace(HALF, cloud=None),
    )
    answer = client_session.Answer(
        question=Question(seed=7, sampler=Sampler(temperature)),
        settings=DragonSettings(),
        records=[
            record(10.0, AnswerOpened("dragon", 0, {"seed": 7})),
            *(record(10.1 + 0.05 * step, event) for step, event in enumerate(decided)),
            record(10.3, AnswerClosed(finish.value, 120, 30)),
        ],
        finish=finish,
        passages=(Passage("Some words of it…", "notes/tom.txt", 0.8, "Tom says yes. And no."),),
        evidence=evidence,
        attributions=(
            Attribution((FERRY, structs.replace(FERRY, name="other.md", bits=1.0)), ("41",)),
        ),
    )
    return Answer("yes", answer)


@pytest.mark.parametrize(
    ("relevance", "asked", "named"),
    [
        (FLOOR, Question(prompt="How do eels swim?"), True),
        (0.03, Question(prompt="How do eels swim?"), False),
        (0.03, Question(prompt="And the FERRY?"), True),
        (0.03, Question(prompt="How do eels swim?", document="vardo_ferry.md"), True),
    ],
)
def test_a_far_document_is_no_source(relevance: float, asked: Question, named: bool) -> None:
    decoded = reply().decoded
    decoded.question = asked
    decoded.attributions = (Attribution((structs.replace(FERRY, relevance=relevance),), ()),)
    found = [each.file for each in Answer("yes", decoded).sources]
    assert found == ["notes/tom.txt"] + [FERRY.name] * named


def console(**options: object) -> Console:
    return Console(file=io.StringIO(), width=100, highlight=False, **options)  # type: ignore[arg-type]


def written(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def test_a_token_counts_as_a_sides_from_three_quarters_on() -> None:
    sides = {1.0: "device", 0.75: "device", 0.74: "both", 0.26: "both", 0.25: "cloud", 0.0: "cloud"}
    assert {share: likely_side(Piece("", share)) for share in sides} == sides


def test_words_are_tinted_by_side_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    target = console(force_terminal=True, color_system="standard")
    view = AnswerView(target)
    for share, text in ((1.0, "mine"), (0.0, "theirs"), (0.5, "ours")):
        view.show(Piece(text, share))
    assert "\x1b[36mmine\x1b[0m" in written(target)
    assert "\x1b[33mtheirs\x1b[0m" in written(target)
    assert "36mours" not in written(target)
    assert "33mours" not in written(target)


def test_a_notice_has_a_line_of_its_own() -> None:
    target = console()
    view = AnswerView(target)
    view.show(Noticed(NoticeKind.WAITING, "the cloud was lost"))
    view.show(Piece("Yes, ", 0.5))
    view.show(Noticed(NoticeKind.BACK, "it is back"))
    view.show(Piece("no.", 0.5))
    view.end_line()
    assert written(target) == "[the cloud was lost]\nYes, \n[it is back]\nno.\n"


def test_an_answer_ends_with_its_sources_and_its_costs() -> None:
    target = console()
    view = AnswerView(target)
    view.show(Piece("yes", 0.5))
    view.end(reply())
    assert written(target).splitlines() == [
        "yes",
        "  device 0.80  notes/tom.txt",
        "         “Tom says yes.”",
        "  cloud  0.25  vardo_ferry.md  The Vardo ferry",
        "         “It leaves at 7:40.”",
        f"  {cost_line(reply())}",
        f"  {ledger_line(reply().ledger)}",
    ]


def test_codes_that_no_document_has_are_named_once() -> None:
    target = console()
    AnswerView(target).end(replace(reply(), text="41, 7:40 or 41"))
    lines = written(target).splitlines()
    assert sum("41" in line for line in lines) == 1
    assert not any("7:40" in line for line in lines if "41" in line)


def test_the_costs_fit_a_hundred_columns_and_name_what_matters() -> None:
    line = cost_line(reply())
    assert len(line) <= 98
    assert line.startswith("3 tokens | first 100 ms | 50.0 ms/token | accepted device 100 % cloud")
    assert line.endswith("cloud 50 % | 50 bytes/token")
    assert cost_line(reply(temperature=0.5)).endswith("seed 7")
    assert cost_line(reply(finish=Finish.CANCELLED)).startswith("stopped | 3 tokens")


def test_what_left_is_one_line_with_the_main_files() -> None:
    told = structs.replace(HALF, evidence=6.2, files=(5.9,))
    left = Disclosed("open", question=31, history=9), Disclosed("draft", tokens=1, distributions=1)
    records = [record(1.0 + 0.1 * i, each) for i, each in enumerate(left)]
    answered = reply().decoded
    answered.records += [*records, record(1.2, told)]
    assert ledger_line(Answer("yes", answered).ledger) == (
        "left this side: 40 bytes asked | 1 tokens, 1 distributions | 0 not in the answer | "
        "6 bits of evidence | notes/tom.txt 6"
    )


def test_evidence_against_the_text_is_not_shown() -> None:
    ledger = replace(reply(), text="").ledger
    against = {"evidence_bits": -3.0, "files": [{"file": "tom.txt", "bits": -3.0}]}
    line = ledger_line(ledger | against)
    assert "evidence" not in line
    assert "tom.txt" not in line


def test_an_approximate_answer_says_so() -> None:
    drafted = TokenDecided(0, 5, None, None, "own", 0.1, 1.0)
    events = (
        AnswerOpened("sprinter", 0, {"seed": 1}, exact=False),
        *(drafted, drafted, drafted, BlockJudged(1, 1, 1, 5, 0.1, 0.1)),
    )
    records = [record(10.0, event) for event in events]
    answer = client_session.Answer(
        question=Question(), settings=SprinterSettings(), records=records
    )
    assert cost_line(Answer("yes", answer)).endswith("approximate: 3 tokens not verified")
    assert Answer("yes", answer).to_object()["approximate"] is True


def test_an_answer_without_tokens_has_no_times() -> None:
    opened = record(10.0, AnswerOpened("dragon", 0, {"seed": 1}))
    answer = client_session.Answer(question=Question(), settings=DragonSettings(), records=[opened])
    assert cost_line(Answer("", answer)) == "stopped | 0 tokens | accepted device - cloud -"
    assert Answer("", answer).statistics["ms_per_token"] is None


def test_a_title_is_shown_where_it_says_something_new() -> None:
    for name, given, shown in (
        ("notes/tom.txt", "Tom said", ""),
        ("vardo_ferry.md", "Vardo Ferry", ""),
        ("a.md", "Something that was cut o…", ""),
        ("a.md", "A sentence of the text.", ""),
        ("a.md", "A title", "A title"),
    ):
        assert title(Source("device", name, given, 0.5, 0.0, "")) == shown
