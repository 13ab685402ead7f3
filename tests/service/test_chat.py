"""A conversation on a scripted side without a cloud: text, stop strings, history, stopping."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from dragonrt.errors import DragonError
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.mode import Finish
from dragonrt.modes.question import Question
from dragonrt.node.answers import client_session
from dragonrt.node.answers.citing import Passage
from dragonrt.node.answers.disclosed import DisclosedAnswers
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.service.answer import Answer, Piece
from dragonrt.service.chat import HISTORY, SEED_BITS, Chat, News
from dragonrt.service.prompts import OtherLanguageError
from dragonrt.service.text import JoinedText
from dragonrt.settings import traced
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import (
    AnswerClosed,
    AnswerOpened,
    Disclosed,
    Noticed,
    Record,
    TokenDecided,
)

from .conftest import READS_ENGLISH, RecitingSide, reciting_device


def conversation(answers: dict[str, str], **options: Any) -> tuple[Chat, RecitingSide]:
    device, side = reciting_device(answers)
    return Chat(device, Question(max_tokens=40), **options), side


def pieces(news: list[News]) -> list[Piece]:
    return [each for each in news if isinstance(each, Piece)]


async def test_pieces_make_the_answer_and_the_history_goes_on() -> None:
    talk, side = conversation({"a?": " É 🐉!\nQuestion: more", "b?": " fine\n"}, seed=5)
    news: list[News] = []
    first = await talk.ask("a?", on_news=news.append)
    second = await talk.ask("b?")
    assert first.text == "".join(each.text for each in pieces(news)) == "É 🐉!"
    assert first.decoded.finish is Finish.STOP
    assert (second.text, side.heard[1]) == ("fine", ("b?", (("a?", "É 🐉!"),)))
    assert first.decoded.question.seed == second.decoded.question.seed == 5


async def test_a_question_in_another_language_is_refused() -> None:
    talk, side = conversation({"Wann ist Tee?": "um fünf\n", "When is tea?": "at five\n"})
    assert (await talk.ask("Wann ist Tee?")).text == "um fünf"  # not known what it reads
    side.model = READS_ENGLISH
    with pytest.raises(OtherLanguageError) as told:
        await talk.ask("Wann ist Tee?")
    assert all(each in str(told.value) for each in ("German", "bytes", "English"))
    assert (await talk.ask("When is tea?")).text == "at five"
    asked = [("Wann ist Tee?", ()), ("When is tea?", (("Wann ist Tee?", "um fünf"),))]
    assert side.heard == asked


async def test_a_stopped_answer_keeps_its_text() -> None:
    talk, side = conversation({"long?": "abcdefghij", "b?": "yes\n"})

    def stop_at_c(news: News) -> None:
        if isinstance(news, Piece) and news.text == "c":
            talk.stop()

    reply = await talk.ask("long?", on_news=stop_at_c)
    assert (reply.text, reply.decoded.finish) == ("abc", Finish.CANCELLED)
    assert (await talk.ask("b?")).text == "yes"
    side.on_prepare = talk.stop  # before its first token
    reply = await talk.ask("b?")
    assert (reply.text, reply.decoded.finish) == ("", Finish.CANCELLED)


async def test_the_end_of_a_waiting_stream_stops_no_other() -> None:
    talk, _ = conversation({"a?": "first\n", "b?": "second\n"})
    first, second = talk.stream("a?"), talk.stream("b?")
    await second.end()
    assert [(each.text, each.finish) for each in (await first, await second)] == [
        ("first", "stop"),
        ("", "cancelled"),
    ]


async def test_a_failed_question_is_no_turn() -> None:
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
    seeds = {(await talk.ask("?")).decoded.question.seed for _ in range(4)}
    assert len(seeds) > 1
    assert max(seeds) < 2**SEED_BITS


async def test_json_says_everything_about_an_answer() -> None:
    talk, _ = conversation({"?": "yes\n"}, seed=3)
    news: list[News] = []
    reply = await talk.ask("?", on_news=news.append)
    report = reply.to_object()
    assert report["text"] == "yes"
    assert report["question"] == "?"
    assert report["tokens"] == [*b"yes\n"]
    place = {"start_index": 0, "end_index": 3, "side": "device", "file": "notes.txt"}
    assert report["marks"] == [{**place, "chunk_start": 0}]
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
    (notice,) = [each for each in news if isinstance(each, Noticed)]  # there is no cloud
    assert report["notices"] == [{"kind": "alone", "text": notice.text, "reason": "lost"}]
    assert report["statistics"]["alone_from"] == 0
    assert report["statistics"]["tokens"] == 4


TWO = {"What is it?": " Heron\n", "Who bred it?": " I bred it\n"}
ASKED = "What is it, and who bred it?"


async def test_the_parts_of_a_question_are_turns_of_one_answer() -> None:
    talk, side = conversation(TWO, seed=5)
    news: list[News] = []
    reply = await talk.ask(ASKED, on_news=news.append)
    assert reply.text == "".join(each.text for each in pieces(news)) == "Heron; I bred it"
    assert side.heard == [("What is it?", ()), ("Who bred it?", (("What is it?", "Heron"),))]
    assert Piece("; ", 0.5) in news, "the words between are no side's"
    assert [each.text for each in news if isinstance(each, Answer)] == ["Heron", "I bred it"]
    first, second = side.questions
    assert (first.seed, first.max_tokens) == (5, 40)
    assert second.seed not in (5, first.seed)
    assert second.max_tokens == 40 - len(TWO["What is it?"])
    again, _ = conversation(TWO, seed=5)
    assert [each.decoded.question.seed for each in (await again.ask(ASKED)).parts] == [
        first.seed,
        second.seed,
    ]
    assert talk.history == [("What is it?", "Heron"), ("Who bred it?", "I bred it")]


async def test_parts_sum_their_costs_and_keep_their_sources() -> None:
    talk, _ = conversation({"What is it?": "41\n", "Who bred it?": "No 42\n"}, seed=5)
    reply = await talk.ask(ASKED)
    first, second, joined = reply.to_json()
    assert [(each["question"], each["part"], each["of"]) for each in (first, second)] == [
        ("What is it?", 1, 2),
        ("Who bred it?", 2, 2),
    ]
    report = reply.to_object()
    assert joined == report
    assert (report["question"], report["text"], report["seed"]) == (ASKED, "41; No 42", 5)
    assert report["notices"] == first["notices"] == second["notices"]
    for name in ("tokens",):
        assert report[name] == first[name] + second[name]
    assert [reply.text[m.start : m.end] for m in reply.marked] == ["41", "No 42"]
    for name in ("tokens", "bytes_sent", "forwards"):
        whole = report["statistics"][name]
        assert whole == first["statistics"][name] + second["statistics"][name]
    assert [each["file"] for each in report["sources"]] == ["notes.txt"], "a source is named once"
    for code in report["not_found"]:
        assert reply.text[code["start_index"] : code["end_index"]] == code["text"]
    assert [code["text"] for code in report["not_found"]] == ["41", "42"]


def test_what_left_the_device_and_the_costs_are_summed() -> None:
    def told(prompt: str, begun_s: float, first_s: float, *files: tuple[str, float]) -> Answer:
        decided_s = begun_s + first_s
        evidence = TokenDecided(
            0, 1, None, None, "own", 0.0, 1.0, evidence=1.5, files=tuple(bits for _, bits in files)
        )
        answer = client_session.Answer(
            question=Question(prompt=prompt),
            settings=DragonSettings(),
            records=[
                Record(t, "device", 1, event)
                for t, event in (
                    (begun_s, AnswerOpened("dragon", 0, {})),
                    (begun_s, Disclosed("open", question=9)),
                    (begun_s, Disclosed("draft", tokens=1, distributions=1, step=0, token=2)),
                    (begun_s, Disclosed("draft", tokens=1, distributions=1, step=1, token=1)),
                    (decided_s, evidence),
                    (decided_s + 0.5, structs.replace(evidence, step=1)),
                    (decided_s + 0.5, AnswerClosed("stop", 100, 20)),
                )
            ],
            passages=tuple(Passage("", name, 0.5) for name, _ in files),
        )
        return Answer(prompt, answer)

    parts = [told("a?", 0.0, 1.0, ("x", 1.0), ("y", 2.0)), told("b?", 2.5, 2.0, ("y", 4.0))]
    text = JoinedText(["a?", "b?"], "")
    reply = Answer.joined("a? b?", text, parts, Finish.STOP)
    ledger = reply.ledger
    assert ledger["files"] == [{"file": "x", "bits": 2.0}, {"file": "y", "bits": 12.0}]
    for name in ("question_bytes", "tokens_sent", "tokens_not_in_answer", "evidence_bits"):
        assert ledger[name] == sum(part.ledger[name] for part in parts) > 0
    assert reply.statistics["bytes_sent"] == 200
    # 1 and 2 s to the first tokens, 0.5 s to each one after it; and a second between the parts
    assert AnswerCounts.of(reply.decoded.records).first_token_s == [1.0, 2.0]
    assert reply.statistics["ms_per_token"] == 500
    assert reply.statistics["total_ms"] == 1000 * (1.5 + 1.0 + 2.5)


async def test_a_part_without_an_answer_is_named_and_has_no_source() -> None:
    talk, _ = conversation(TWO | {"Who bred it?": " I don't know.\n"})
    news: list[News] = []
    reply = await talk.ask(ASKED, on_news=news.append)
    assert reply.text == "".join(each.text for each in pieces(news))
    assert reply.text == "Heron; who bred it: I don't know."
    assert [len(part.sources) for part in reply.parts] == [1, 0]
    talk, _ = conversation(dict.fromkeys(TWO, " I don't know.\n"))
    reply = await talk.ask(ASKED)
    assert (reply.text, reply.sources) == ("I don't know.", [])


async def test_a_stop_while_the_library_is_asked_is_not_forgotten() -> None:
    asked = "list the towns in trip.md"
    talk, side = conversation({f"{asked} {n}": "Tarnby\n" for n in range(8)})

    async def call(job: Callable[[], Any]) -> Any:
        talk.stop()
        return job()

    store = SimpleNamespace(chunks_of=lambda name: range(8))
    index = SimpleNamespace(files=lambda: {"trip.md": ""}, store=store)
    side.library = SimpleNamespace(retriever=SimpleNamespace(index=index))
    side.librarian = SimpleNamespace(call=call)
    reply = await talk.ask(asked)
    assert (reply.text, reply.decoded.finish) == ("", Finish.CANCELLED)


@pytest.mark.parametrize(
    ("asked", "options"),
    [(Question(parts="off"), {}), (Question(top_logprobs=2), {}), (Question(), {"stops": ("!",)})],
)
async def test_a_question_is_asked_whole_on_demand(
    asked: Question, options: dict[str, Any]
) -> None:
    device, side = reciting_device({ASKED: "both\n"})
    talk = Chat(device, asked, **options)
    assert (await talk.ask(ASKED)).text == "both"
    assert [prompt for prompt, _ in side.heard] == [ASKED]


async def test_no_part_follows_a_stop_or_the_longest_answer() -> None:
    talk, side = conversation(TWO)

    def stop_at_a_piece(news: News) -> None:
        if isinstance(news, Piece):
            talk.stop()

    reply = await talk.ask(ASKED, on_news=stop_at_a_piece)
    assert (reply.text, reply.decoded.finish) == ("H", Finish.CANCELLED)
    talk.question = Question(max_tokens=len(TWO["What is it?"]))
    reply = await talk.ask(ASKED)
    assert (reply.text, reply.decoded.finish) == ("Heron", Finish.LENGTH)
    assert [prompt for prompt, _ in side.heard] == ["What is it?"] * 2


MARKED = tuple(b" -")
REDACTING = DragonSettings(disclose=Disclosure.REDACTED)


def redact(talk: Chat, settings: DragonSettings = REDACTING, **more: Any) -> None:
    """Give the chat a device of that level whose model has a marker."""
    resources = replace(talk.device.complete(), marker=MARKED)
    talk.device = replace(talk.device, settings=settings, resources=resources, **more)


async def test_a_cloud_reads_what_was_shown_of_history() -> None:
    talk, side = conversation({"who?": "Tom\n", "b?": "yes\n"})
    redact(talk)
    await talk.ask("who?")  # alone: all of it is withheld
    reply = await talk.ask("b?")
    assert side.heard[1] == ("b?", (("who?", "Tom"),)), "this side reads it whole"
    asked = reply.decoded.question
    assert "Tom" not in asked.redacted(" …", (), MARKED).history[0][1]
    talk.history = [("who?", "Tim")]  # of which is not known what was shown
    asked = (await talk.ask("b?")).decoded.question
    assert asked.redacted(" …", (), MARKED).history == (("who?", "…"),)


BRIDGE = "How old is the head of the firm that insures my boat?"
STEPS = {"Which firm insures my boat?": " Hartog.\n", "How old is the head of Hartog?": " 71\n"}
UNKNOWN = "I don't know."


async def test_the_clause_of_a_bridge_is_asked_first() -> None:
    talk, side = conversation(STEPS, history=[("b?", "yes")])
    news: list[News] = []
    reply = await talk.ask(BRIDGE, on_news=news.append)
    assert reply.text == "".join(each.text for each in pieces(news)) == "Hartog. 71"
    assert side.heard == [(asked, (("b?", "yes"),)) for asked in STEPS]
    assert [each.place for each in reply.parts] == [(1, 2), (2, 2)]
    assert len({each.seed for each in side.questions}) == 2
    assert talk.history == [("b?", "yes"), (BRIDGE, "Hartog. 71")]


@pytest.mark.parametrize(
    ("clause", "then", "text"),
    [
        (UNKNOWN, {BRIDGE: " 71\n"}, "71"),
        (UNKNOWN, {BRIDGE: f"{UNKNOWN}\n"}, UNKNOWN),
        (
            "Hartog",
            {"How old is the head of Hartog?": f"{UNKNOWN}\n"},
            f"Hartog; how {BRIDGE[4:-1]}: {UNKNOWN}",
        ),
    ],
    ids=["asked whole", "no answer", "half an answer"],
)
async def test_a_refusal_in_a_bridge_is_said(clause: str, then: dict[str, str], text: str) -> None:
    talk, side = conversation({next(iter(STEPS)): f"{clause}\n"} | then)
    reply = await talk.ask(BRIDGE)
    assert (reply.text, reply.decoded.finish) == (text, Finish.STOP)
    assert [asked for asked, _ in side.heard] == [next(iter(STEPS)), *then]
    assert talk.history == [(BRIDGE, text)]


async def test_a_bridge_is_asked_whole_if_words_are_withheld() -> None:
    talk, side = conversation({BRIDGE: f"{UNKNOWN}\n"} | STEPS)
    redact(talk)
    assert (await talk.ask(BRIDGE)).text == UNKNOWN
    assert len(side.heard) == 1


async def test_withheld_parts_stay_withheld() -> None:
    talk, side = conversation(TWO | {"b?": "yes\n"})
    redact(talk)
    reply = await talk.ask(ASKED)
    for asked in side.questions[1:]:
        assert asked.history == (("What is it?", "Heron"),)
        shown = asked.redacted(" …", (), MARKED).history
        assert "Heron" not in str(shown)
    talk.history = [(ASKED, reply.text)]  # as a client of the API sends it
    asked = (await talk.ask("b?")).decoded.question
    ((_, shown_whole),) = asked.redacted(" …", (), MARKED).history
    assert "Heron" not in shown_whole
    assert "; " in shown_whole, "it is known what was shown"


@pytest.mark.parametrize("later", Disclosure)
async def test_withheld_answers_survive_a_restart(tmp_path: Path, later: Disclosure) -> None:
    answers = {"who?": "Tom\n", "b?": "yes\n"}
    for settings, prompt in ((REDACTING, "who?"), (DragonSettings(disclose=later), "b?")):
        talk, _ = conversation(answers)
        redact(talk, settings=settings, disclosed=DisclosedAnswers(tmp_path / "told"))
        talk.history = [("who?", "Tom")] if prompt == "b?" else []  # as a client sends it back
        asked = (await talk.ask(prompt)).decoded.question  # alone: all of it is withheld
    ((_, read),) = asked.resumed(()).history
    assert "Tom" not in read


async def test_an_unknown_answer_is_withheld_if_drafts_are_kept() -> None:
    talk, _ = conversation({"b?": "yes\n"})
    for level, told in ((Disclosure.DRAFTS, "Tim"), (Disclosure.ANSWER, "…")):
        talk.history = [("who?", "Tim")]
        talk.device = replace(talk.device, settings=DragonSettings(disclose=level))
        asked = (await talk.ask("b?")).decoded.question
        assert asked.resumed(()).history == (("who?", told),)
