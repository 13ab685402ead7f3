"""What a question asks for: tasks on a document as a whole, and parts."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from dragonrt import bundled
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.service.answer import Piece
from dragonrt.service.chat import Chat, News
from dragonrt.service.prompts import (
    LONGEST,
    MOST_CHUNKS,
    MOST_PARTS,
    TaskError,
    bridge_of,
    named_in,
    parts_of,
    reads_whole,
    small_talk,
)
from dragonrt.service.text import JoinedText
from dragonrt.traces.events import Noticed, NoticeKind

from .conftest import RecitingSide, reciting_device

LARGER = "Qwen2.5-1.5B-Instruct"
PROMPT = "List the stalls in plan.md"


@pytest.mark.parametrize(
    ("prompt", "whole"),
    [
        ("List the guests.", True),
        ("Please make a shopping list for the soup", True),
        ("Can you give me a list of the dates?", True),
        ("Summarize the lease", True),
        ("TL;DR of the minutes", True),
        ("Write a short summary of the diary.", True),
        ("Compare both offers.", False),
        ("What is on the list?", False),
        ("When did Tom list the house?", False),
        ("Listen to what?", False),
        ("Where is the summary?", False),
    ],
)
def test_a_task_is_known_by_how_it_begins(prompt: str, whole: bool) -> None:
    assert reads_whole(prompt, LARGER) is whole


@pytest.mark.parametrize("prompt", ["Summarise the lease", "Compare both offers."])
def test_a_reader_says_that_it_does_not_write(prompt: str) -> None:
    with pytest.raises(TaskError):
        reads_whole(prompt, bundled.SMOLLM2)


@pytest.mark.parametrize(
    ("prompt", "file"),
    [
        ("List what a/Team Meeting.docx says", "a/team_meeting.docx"),
        ("Summarise the team meeting.", "a/team_meeting.docx"),
        ("List the tasks from our team-meeting", "a/team_meeting.docx"),
        ("List the dates in the lease", "lease.pdf"),
        ("List the rooms that we lease", ""),
        ("List the releases", ""),
    ],
)
def test_the_document_is_the_one_that_is_named(prompt: str, file: str) -> None:
    assert named_in(prompt, ["a/team_meeting.docx", "lease.pdf", "meeting.md"]) == file


class Shelf:
    """Stands in for a library with one document of so many chunks, and for what reads it."""

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks

    @property
    def retriever(self) -> Self:
        return self

    index = store = retriever

    async def call(self, job: Any) -> Any:
        return job()

    def files(self) -> dict[str, str]:
        return {"plan.md": "content", "other.md": "content"}

    def chunks_of(self, name: str) -> list[int]:
        return [*range(self.chunks)] if name == "plan.md" else []


def shelved(answers: dict[str, str], chunks: int, **asked: Any) -> tuple[Chat, RecitingSide]:
    device, side = reciting_device(answers)
    side.library = side.librarian = Shelf(chunks)
    return Chat(device, Question(max_tokens=60, **asked), 7), side


async def test_a_list_is_read_chunk_by_chunk_and_is_one_turn() -> None:
    said = "cake", "I don't know.", "books"
    answers = {f"{PROMPT} {place}": each for place, each in enumerate(said)} | {"When?": "May"}
    conversation, side = shelved(answers, 3)
    news: list[News] = []
    reply = await conversation.ask(PROMPT, on_news=news.append)
    pieces = [each.text for each in news if isinstance(each, Piece)]
    assert reply.text == "cake; books" == "".join(pieces)
    assert [(each.document, each.chunk) for each in side.questions] == [
        ("plan.md", place) for place in range(3)
    ]
    assert {each.documents for each in side.questions} == {0}, "the cloud reads nothing"
    assert len({each.seed for each in side.questions}) == 3
    await conversation.ask("When?")
    assert [len(history) for _, history in side.heard] == [0, 0, 0, 1]
    assert side.heard[-1][1] == ((PROMPT, "cake; books"),)
    assert side.questions[-1].chunk is None


@pytest.mark.parametrize("more", [0, 1])
async def test_the_bound_is_said_and_a_chosen_document_needs_no_name(more: int) -> None:
    answers = {f"List all. {place}": "a" for place in range(MOST_CHUNKS + more)}
    conversation, side = shelved(answers, MOST_CHUNKS + more, document="plan.md")
    news: list[News] = []
    reply = await conversation.ask("List all.", on_news=news.append)
    assert len(side.questions) == MOST_CHUNKS
    said = [each for each in news if isinstance(each, Noticed)]
    said = [each for each in said if each.kind is NoticeKind.BEGINNING]
    assert [f"{MOST_CHUNKS + 1}" in each.text for each in said] == [True] * more
    assert set(said) <= set(reply.decoded.notices)


@pytest.mark.parametrize("prompt", [PROMPT.replace("plan", "another"), "What is in plan.md?"])
async def test_all_else_is_asked_as_it_is(prompt: str) -> None:
    conversation, side = shelved({prompt: "cake"}, 3)
    assert (await conversation.ask(prompt)).text == "cake"
    assert [each.chunk for each in side.questions] == [None]


async def test_other_modes_read_no_document_whole() -> None:
    conversation, side = shelved({PROMPT: "cake"}, 3)
    device = replace(conversation.device, settings=SpeculativeSettings(), resources=None)
    conversation.device = device
    await conversation.ask(PROMPT)
    assert [each.chunk for each in side.questions] == [None]


TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("parts.toml").read_text("utf-8"))
REFUSAL = "I don't know."


@pytest.mark.parametrize("question", TABLE["whole"])
def test_a_question_of_one_part_stays_as_it_is(question: str) -> None:
    assert parts_of(question) == [question]


@pytest.mark.parametrize(("question", "parts"), [(q, parts) for q, *parts in TABLE["cut"]])
def test_a_question_of_several_parts_is_cut_between_them(question: str, parts: list[str]) -> None:
    assert parts_of(question) == parts
    assert len(parts) > 1
    for part in parts:
        assert parts_of(part) == [part], "a part has no parts"


def test_the_table_has_both_kinds_and_eighty_cases() -> None:
    assert {kind: len(TABLE[kind]) for kind in ("whole", "cut")} == {"whole": 40, "cut": 40}


def test_long_texts_are_not_cut_and_parts_are_bounded() -> None:
    question = "What is it, and who made it?"
    assert len(parts_of(question)) == 2
    assert parts_of(f"{question} {LONGEST * '-'}") == [f"{question} {LONGEST * '-'}"]
    assert len(parts_of("Who is it? " * (MOST_PARTS + 2))) == MOST_PARTS
    endless = "the cat and x " * 40_000  # at each "and" all before it would be read again
    assert parts_of(endless) == [endless]


@pytest.mark.parametrize(("question", "inner", "outer"), TABLE["bridges"])
def test_a_bridge_has_a_question_for_its_clause(question: str, inner: str, outer: str) -> None:
    found = bridge_of(question)
    assert found is not None
    assert (found[0], found[1]("X.")) == (inner, outer)
    assert bridge_of(inner) is bridge_of(outer) is None


@pytest.mark.parametrize("question", TABLE["no_bridges"])
def test_a_question_without_a_last_clause_is_no_bridge(question: str) -> None:
    assert bridge_of(question) is None


def joined(parts: list[str], *answers: list[str]) -> tuple[JoinedText, list[str]]:
    """Push the pieces of each answer; return what was shown, piece by piece."""
    text = JoinedText(parts, REFUSAL)
    shown: list[str] = []
    for pieces in answers:
        for piece in pieces:
            shown += filter(None, text.push(piece))
        text.next()
    shown += filter(None, [text.end()])
    assert "".join(shown) == text.text
    return text, shown


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (["Heron", "Kuipers"], "Heron; Kuipers"),
        (["It is Heron.", "Kuipers did. "], "It is Heron. Kuipers did."),
        (["Heron \n", REFUSAL], "Heron; who bred it: I don't know."),
        ([REFUSAL, "Kuipers"], "What is it: I don't know. Kuipers"),
        (["It is Heron.", "i don't know"], "It is Heron. Who bred it: i don't know"),
        ([REFUSAL, REFUSAL], REFUSAL),
        (["Heron", ""], "Heron"),
        (["", ""], ""),
    ],
)
def test_answers_are_joined_and_a_refusal_names_its_part(answers: list[str], text: str) -> None:
    made, _ = joined(["What is it?", "Who bred it?"], *[[answer] for answer in answers])
    assert made.text == text
    for place, answer in zip(made.places, answers, strict=True):
        if answer.strip() in text:
            assert text[place:].startswith(answer.strip())


def test_words_are_shown_as_they_come_once_they_are_no_refusal() -> None:
    parts = ["What is it?", "Who bred it?"]
    _, shown = joined(parts, ["I", " grew", " it", " "], ["I", " don't", " know."])
    assert shown == ["I grew", " it", "; who bred it: I don't know."]
    assert joined(parts[:1], ["I", " don't", " know."])[1] == ["I", " don't", " know."]


@pytest.mark.parametrize(
    ("prompt", "names", "reply"),
    [
        ("Hello", (), "Hello. Ask a question."),
        (" good morning! ", (), "Hello. Ask a question."),
        ("Thanks", (), "You're welcome."),
        ("Great, thank you so much.", (), "You're welcome."),
        ("Bye!", (), "Goodbye."),
        ("What documents do you have?", (), "0 of your own"),
        ("Which files are there", ("a {b}.md", "c.txt"), "2 of your own: a {b}.md, c.txt"),
        ("List all my files.", [*"abcdefghijk"], "11 of your own: a, b, c, d, e, f, g, h, i, j, …"),
    ],
)
def test_small_talk_has_fixed_replies(prompt: str, names: Sequence[str], reply: str) -> None:
    assert small_talk(prompt, bundled.SMOLLM2, names) == reply
    assert small_talk(prompt, LARGER, names) == "", "other models chat themselves"


@pytest.mark.parametrize(
    "prompt",
    [
        *(
            "Thanks to whom?",
            "Hello Kitty",
            "Who are you meeting?",
            "What files do you have on Emil?",
        ),
        *("", "Hi, when is it?", "Good Friday", "Bye laws"),
        *(each.text for each in bundled.questions()),
    ],
)
def test_what_asks_for_more_is_no_small_talk(prompt: str) -> None:
    assert small_talk(prompt, bundled.SMOLLM2) == ""


async def test_small_talk_is_no_turn_and_nothing_is_read() -> None:
    device, side = reciting_device({"When?": "May"})
    side.model = replace(side.model, name=bundled.SMOLLM2)
    side.library = side.librarian = Shelf(1)
    names = "What documents do you have?"
    before = [(names, "1 of your own: secret.md"), ("Who?", "Eva")]
    conversation, news = Chat(device, Question(max_tokens=9), history=before), list[News]()
    reply = await conversation.ask(names, on_news=news.append)
    assert reply.text == "2 of your own: other.md, plan.md"
    assert news == [Piece(reply.text, 0.5), reply]
    assert (reply.finish, reply.sources, side.heard) == ("stop", [], [])
    assert reply.ledger["question_bytes"] == 0 == reply.statistics["tokens"]
    await conversation.ask("When?")
    assert side.heard == [("When?", (("Who?", "Eva"),))]
