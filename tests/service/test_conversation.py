"""A conversation on a scripted side without a cloud: text, stop strings, history, stopping."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dragonrt.errors import DragonError
from dragonrt.modes.mode import Finish
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings, SprinterSettings
from dragonrt.node.client_session import Answer
from dragonrt.node.told import ToldAnswers
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.service.conversation import (
    HISTORY,
    SEED_BITS,
    Conversation,
    Reply,
)
from dragonrt.settings import traced

from .conftest import RecitingSide, reciting_device


def conversation(answers: dict[str, str], **options: Any) -> tuple[Conversation, RecitingSide]:
    device, side = reciting_device(answers)
    return Conversation(device, Question(max_tokens=40), **options), side


async def test_pieces_make_the_answer_and_the_history_goes_on() -> None:
    talk, side = conversation({"a?": " É 🐉!\nQuestion: more", "b?": " fine\n"}, seed=5)
    pieces: list[str] = []
    first = await talk.ask("a?", lambda text, decision: pieces.append(text))
    second = await talk.ask("b?")
    assert first.text == "".join(pieces) == "É 🐉!"
    assert first.answer.finish is Finish.STOP
    assert (second.text, side.heard[1]) == ("fine", ("b?", (("a?", "É 🐉!"),)))
    assert first.answer.question.seed == second.answer.question.seed == 5


async def test_a_stopped_answer_keeps_what_there_is_and_the_chat_goes_on() -> None:
    talk, _ = conversation({"long?": "abcdefghij", "b?": "yes\n"})
    shown: list[str] = []

    def stop_at_c(text: str, decision: Any) -> None:
        shown.append(text)
        if text == "c":
            talk.stop()

    reply = await talk.ask("long?", stop_at_c)
    assert reply.text == "abc"
    assert reply.answer.finish is Finish.CANCELLED
    assert (await talk.ask("b?")).text == "yes"


async def test_an_answer_may_be_stopped_before_its_first_token() -> None:
    talk, side = conversation({"?": "abc\n"})
    side.on_prepare = talk.stop
    reply = await talk.ask("?")
    assert (reply.text, reply.answer.finish) == ("", Finish.CANCELLED)


async def test_a_question_that_cannot_be_answered_leaves_the_conversation_usable() -> None:
    talk, side = conversation({"ok?": "yes\n"})
    with pytest.raises(DragonError):
        await talk.ask("what?")
    assert (await talk.ask("ok?")).text == "yes"
    assert side.heard[1] == ("ok?", ()), "what was never answered is no turn"


async def test_old_turns_are_forgotten() -> None:
    talk, side = conversation({"?": "yes\n"})
    for _ in range(HISTORY + 2):
        await talk.ask("?")
    assert len(side.heard[-1][1]) == HISTORY


async def test_without_a_seed_each_answer_draws_its_own() -> None:
    talk, _ = conversation({"?": "yes\n"})
    seeds = {(await talk.ask("?")).answer.question.seed for _ in range(4)}
    assert len(seeds) > 1
    assert max(seeds) < 2**SEED_BITS


async def test_json_says_everything_about_an_answer() -> None:
    talk, _ = conversation({"?": "yes\n"}, seed=3)
    notices: list[str] = []
    reply = await talk.ask("?", on_notice=notices.append)
    report = reply.to_json()
    assert report["text"] == "yes"
    assert report["question"] == "?"
    assert report["tokens"] == [*b"yes\n"]
    assert report["carried"] == 4 * [{"device_share": 1.0, "document": "notes.txt"}]
    assert (report["finish"], report["seed"], report["aggregator"]) == ("stop", 3, "both")
    assert (report["mode"], report["approximate"]) == ("dragon", False)
    asked = replace(Question(max_tokens=40), seed=3)
    assert report.items() >= (traced(asked) | traced(DragonSettings())).items(), "no hand-kept list"
    assert report["sources"] == [
        {
            "side": "device",
            "file": "notes.txt",
            "title": "Notes",
            "relevance": 0.5,
            "bits": 80.0,
            "sentence": "What is known.",
        }
    ]
    assert report["not_found"] == []
    assert report["notices"] == notices
    assert len(notices) == 1, "there is no cloud, and the user hears of it"
    assert report["statistics"]["alone_from"] == 0
    assert report["statistics"]["tokens"] == 4


def test_an_answer_of_a_verifier_says_that_it_is_approximate() -> None:
    reply = Reply("yes", Answer(question=Question(prompt="?"), settings=SprinterSettings()))
    assert reply.to_json()["approximate"] is True


async def test_a_cloud_may_read_of_earlier_answers_what_was_shown_of_them() -> None:
    talk, side = conversation({"who?": "Tom\n", "b?": "yes\n"})
    resources = replace(talk.device.resources, marker=tuple(b" -"))
    settings = DragonSettings(disclose=Disclosure.REDACTED)
    talk.device = replace(talk.device, settings=settings, resources=resources)
    await talk.ask("who?")  # alone: all of it is withheld
    reply = await talk.ask("b?")
    assert side.heard[1] == ("b?", (("who?", "Tom"),)), "this side reads it whole"
    asked = reply.answer.question
    assert "Tom" not in asked.redacted(" …", (), resources.marker).history[0][1]
    talk.history = [("who?", "Tim")]  # of which is not known what was shown
    asked = (await talk.ask("b?")).answer.question
    assert asked.redacted(" …", (), resources.marker).history == (("who?", "…"),)


@pytest.mark.parametrize("later", Disclosure)
async def test_what_was_withheld_stays_withheld_after_a_restart(
    tmp_path: Path, later: Disclosure
) -> None:
    answers = {"who?": "Tom\n", "b?": "yes\n"}
    redacting = DragonSettings(disclose=Disclosure.REDACTED)
    for settings, prompt in ((redacting, "who?"), (replace(redacting, disclose=later), "b?")):
        talk, _ = conversation(answers)
        resources = replace(talk.device.resources, marker=tuple(b" -"))
        told = ToldAnswers(tmp_path / "told")
        talk.device = replace(talk.device, settings=settings, resources=resources, told=told)
        talk.history = [("who?", "Tom")] if prompt == "b?" else []  # as a client sends it back
        asked = (await talk.ask(prompt)).answer.question  # alone: all of it is withheld
    ((_, read),) = asked.resumed(()).history
    assert "Tom" not in read


async def test_an_answer_that_nobody_knows_is_withheld_where_drafts_are_kept() -> None:
    talk, _ = conversation({"b?": "yes\n"})
    for level, told in ((Disclosure.DRAFTS, "Tim"), (Disclosure.ANSWER, "…")):
        talk.history = [("who?", "Tim")]
        talk.device = replace(talk.device, settings=DragonSettings(disclose=level))
        asked = (await talk.ask("b?")).answer.question
        assert asked.resumed(()).history == (("who?", told),)
