"""A conversation on a scripted side without a cloud: text, stop strings, history, stopping."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dragonrt.chat.conversation import HISTORY, SEED_BITS, Conversation, stop_tokens
from dragonrt.distributions.codec import codec
from dragonrt.errors import DragonError
from dragonrt.language.prompt import PlainPrompt
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.draft import Line
from dragonrt.runtime.drafter import Prediction, quantize
from dragonrt.runtime.modes.dragon import Answer, beginning
from dragonrt.runtime.outcome import Finish, Turn
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.preparing import Prepared
from dragonrt.runtime.trace import NoTrace
from dragonrt.sampling.samplers import Sampler
from dragonrt.wire.messages import Source

END = 0
VOCABULARY = 256


@dataclass(frozen=True, slots=True)
class ByteModel:
    """Tokens are bytes; token 0 ends an answer."""

    prompt: PlainPrompt = field(default_factory=PlainPrompt)
    stop_tokens: tuple[int, ...] = (END,)

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class Recitation:
    """A drafter that is sure of every token of a text."""

    text: bytes
    plan: Plan

    async def predict(self, line: Line, first: int, last: int) -> list[Prediction]:
        predictions = []
        for step in range(first, last + 1):
            p = np.zeros(VOCABULARY)
            p[self.text[step] if step < len(self.text) else END] = 1.0
            drafted = quantize(
                p, "device", step, self.plan.aggregation_rule(), codec(self.plan.codec, VOCABULARY)
            )
            predictions.append(Prediction(*drafted, 0.0, 0, 0.001))
        return predictions

    def preempt(self) -> None:
        pass


@dataclass(slots=True)
class RecitingSide:
    """Implements Preparer: each question has its answer; one that has none is an error."""

    answers: dict[str, str]
    model: ByteModel = field(default_factory=ByteModel)
    trace: NoTrace = field(default_factory=NoTrace)
    profile: None = None
    share_sources: bool = True
    vocabulary: int = VOCABULARY
    heard: list[tuple[str, tuple[Turn, ...]]] = field(default_factory=list)
    on_prepare: Callable[[], None] = lambda: None

    async def prepare(self, question: str, history: Sequence[Turn], plan: Plan) -> Prepared[Any]:
        self.heard.append((question, tuple(history)))
        self.on_prepare()
        if question not in self.answers:
            raise DragonError("the question is too long")
        drafter = Recitation(self.answers[question].encode(), plan)
        return Prepared(drafter, (Source("Notes", "notes.txt", 0.5),), 3, 0.0, 0.0)


async def no_cloud() -> Any:
    raise DragonError("there is no cloud")


def conversation(
    answers: dict[str, str], **options: Any
) -> tuple[Conversation[Plan, Answer], RecitingSide]:
    side: Any = RecitingSide(answers)
    plan = Plan(seed=0, sampler=Sampler(temperature=0.0), max_tokens=40)
    begin = beginning(side, Connector(no_cloud), "alone")
    return Conversation(side.model, plan, begin, **options), side


async def test_pieces_make_the_answer_and_the_history_goes_on() -> None:
    talk, side = conversation({"a?": " É 🐉!\nQuestion: more", "b?": " fine\n"}, seed=5)
    pieces: list[str] = []
    first = await talk.ask("a?", lambda text, decision: pieces.append(text))
    second = await talk.ask("b?")
    assert first.text == "".join(pieces) == "É 🐉!"
    assert first.answer.finish is Finish.STOP
    assert (second.text, side.heard[1]) == ("fine", ("b?", (("a?", "É 🐉!"),)))
    assert first.answer.plan.seed == second.answer.plan.seed == 5


async def test_a_stop_string_of_several_tokens_ends_the_answer() -> None:
    talk, _ = conversation({"?": "one two three"}, stops=(" thr",))
    reply = await talk.ask("?")
    assert reply.text == "one two"
    assert reply.answer.finish is Finish.STOP
    assert len(reply.answer.tokens) <= len("one two thr")


async def test_the_longest_answer_is_the_plans() -> None:
    talk, _ = conversation({"?": "x" * 100})
    reply = await talk.ask("?")
    assert (reply.text, reply.answer.finish) == ("x" * 40, Finish.LENGTH)


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


async def test_stopping_without_an_answer_does_nothing() -> None:
    talk, _ = conversation({"?": "abc\n"})
    talk.stop()
    assert (await talk.ask("?")).text == "abc"
    talk.stop()


async def test_a_question_that_cannot_be_answered_leaves_the_conversation_usable() -> None:
    talk, side = conversation({"ok?": "yes\n"})
    with pytest.raises(DragonError, match="too long"):
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
    seeds = {(await talk.ask("?")).answer.plan.seed for _ in range(4)}
    assert len(seeds) > 1
    assert max(seeds) < 2**SEED_BITS


async def test_json_says_everything_about_an_answer() -> None:
    talk, _ = conversation({"?": "yes\n"}, seed=3)
    notices: list[str] = []
    reply = await talk.ask("?", on_notice=notices.append)
    report = reply.to_json()
    assert report["text"] == "yes"
    assert report["tokens"] == [*b"yes\n"]
    assert report["carried"] == 4 * [{"device_share": 1.0, "document": "notes.txt"}]
    assert (report["finish"], report["seed"], report["aggregator"]) == ("stop", 3, "both")
    assert report["sources"] == [
        {"side": "device", "file": "notes.txt", "title": "Notes", "relevance": 0.5}
    ]
    assert report["notices"] == notices
    assert len(notices) == 1, "there is no cloud, and the user hears of it"
    assert report["statistics"]["alone_from"] == 0
    assert report["statistics"]["tokens"] == 4


def test_a_stop_string_that_is_one_token_is_a_stop_token() -> None:
    model: Any = ByteModel()
    assert stop_tokens(model, ("\n", "ab", "!")) == (END, ord("\n"), ord("!"))
