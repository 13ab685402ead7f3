"""Fields are checked as bytes come in, and messages have the same bytes in any version."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragonrt.modes.dragon.drafts import Coefficients, Draft
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.messages import Block, Target, Upload, Verdict
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.wire.encoding import decode, encode, encode_frame
from dragonrt.wire.fields import MAX_LINE, MAX_TOKENS, Fields, pack
from dragonrt.wire.messages import (
    CONNECTION_MESSAGES,
    PROTOCOL_VERSION,
    SESSION_MESSAGES,
    Attribution,
    Authenticate,
    Close,
    Conclude,
    Goodbye,
    Hello,
    Message,
    Open,
    Opened,
    Ping,
    Pong,
    Source,
    Working,
)
from dragonrt.wire.reasons import MessageError, Reason
from tests.strategies import of_kind

VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=30),
    st.binary(max_size=50),
    st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), max_size=3).map(tuple),
)
TOGETHER: dict[type[Fields], dict[str, st.SearchStrategy[Any]]] = {
    Hello: {"version": st.just(PROTOCOL_VERSION)},
    Draft: {"ahead": st.just(0)},
    Block: {
        "step": st.integers(5, MAX_TOKENS),
        "count": st.just(3),
        "resolutions": st.sampled_from([(), (100,), (100, 7, 2**20)]),
    },
}
"""Of fields that are bounded by other fields, too."""


def instances(kind: type[Fields]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, include_extras=True)
    own = {name: of_kind(hints[name], VALUE, instances) for name in kind.__struct_fields__}
    return st.builds(kind, **own | TOGETHER.get(kind, {}))


MESSAGE = st.one_of(*map(instances, (*CONNECTION_MESSAGES, *SESSION_MESSAGES)))

OPENING = Open(1, "dragon", (("prompt", "Who?"),), (("codec", "topp:0.8"),))
GUESS = Draft(3, 17, 2**63 + 5, 4321, -1.2345, 45123, 4, 2**31, bytes(range(10)))
BLOCKED = Block(3, 12, 7, 2**31, 8, (), (), bytes(13))


@given(MESSAGE)
def test_round_trip(message: Message) -> None:
    decoded = decode(encode(message))
    assert decoded == message
    assert type(decoded) is type(message)
    assert encode(decoded) == encode(message)


def test_every_message_is_covered_here_and_has_its_own_type() -> None:
    kinds = [*CONNECTION_MESSAGES, *SESSION_MESSAGES]
    assert sorted(kind.TYPE for kind in kinds) == [*range(14), 16, 17]
    for kind in SESSION_MESSAGES:
        assert kind.__struct_fields__[0] == "session", "a fault must be attributable to a session"


def test_a_draft_is_small() -> None:
    """Header, session, step, hashes, token and relevance cost 41 bytes over the payload.

    Where a side schedules by times, an answer's first minute of them costs 10 more.
    """
    assert len(encode_frame(encode(replace(GUESS, decode_us=0)))) <= 51
    timed = replace(GUESS, time_us=60_000_000, echo_us=60_000_000)
    assert len(encode_frame(encode(timed))) <= 61


def test_a_block_is_small() -> None:
    """What a slow uplink carries beside the bits that the formulas count."""
    assert len(encode_frame(encode(BLOCKED))) <= 20 + len(BLOCKED.payload)


def sourced(*sources: Any, **others: Any) -> Message:
    return Close(1, Reason.FINISHED, attribution=Attribution(sources, **others))


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (lambda: replace(GUESS, step=2**18), "step"),
        (lambda: replace(GUESS, token=True), "token"),
        (lambda: replace(GUESS, token=1.0), "token"),
        (lambda: replace(GUESS, relevance=float("nan")), "relevance"),
        (lambda: replace(GUESS, relevance=float("-inf")), "relevance"),
        (lambda: replace(GUESS, relevance=True), "relevance"),
        (lambda: replace(GUESS, payload="text"), "payload"),
        (lambda: replace(GUESS, payload=bytes(2**21 + 1)), "payload"),
        (lambda: replace(GUESS, ahead=18), "ahead"),
        (lambda: replace(OPENING, mode=""), "mode"),
        (lambda: replace(OPENING, mode="a\x1b[2J"), "mode"),
        (lambda: replace(OPENING, question=(("a", 1),) * 65), "question"),
        (lambda: replace(OPENING, settings=("a",)), "settings"),
        (lambda: replace(OPENING, settings=((1, 1),)), "settings"),
        (lambda: replace(BLOCKED, count=257), "count"),
        (lambda: replace(BLOCKED, resolutions=(0,)), "resolutions"),
        (lambda: replace(BLOCKED, resolutions=(9, 9, 9)), "resolutions"),
        (lambda: replace(BLOCKED, decided=(1,) * 8), "decided"),
        (lambda: Verdict(1, 0, 257, 0, 0), "accepted"),
        (lambda: Upload(1, 0, 0.0, 0, (b"x",) * 258), "payloads"),
        (lambda: Upload(1, 0, 0.0, 0, (bytes(2**21),) * 2), "payloads"),
        (lambda: Authenticate(bytes(31)), "proof"),
        (lambda: replace(Target(1, 0, 0, 0, "cloud"), aggregator="edge"), "aggregator"),
        (lambda: Coefficients(1, 1.1e9, 1.0, 0.0), "k_a"),
        (lambda: Coefficients(1, 0.0, 0.9, 0.0), "k_b"),
        (lambda: Coefficients(1, 0.0, 1.0, -1.0), "k_c"),
        (lambda: replace(GUESS, echo_us=-1), "echo_us"),
        (lambda: replace(GUESS, kept=0.5), "kept"),
        (lambda: replace(GUESS, kept=1), "kept"),
        (lambda: sourced("a"), "attribution"),
        (lambda: sourced(missing=("4",) * 65), "attribution"),
        (lambda: sourced(missing=("4" * 257,)), "attribution"),
        (lambda: sourced(differing=("",)), "attribution"),
        (lambda: replace(Close(1, Reason.FINISHED), attribution=1), "attribution"),
        (lambda: sourced(Source("a", "b", float("inf"))), "attribution"),
        (lambda: sourced(Source("a", "b", 1.0, float("nan"))), "attribution"),
        (lambda: Ping(0, 0, bytes(2**20 + 1)), "padding"),
        (lambda: replace(Close(1, Reason.ERROR), reason=7), "reason"),
    ],
)
def test_wrong_fields_are_named(wrong: Callable[[], Message], field: str) -> None:
    with pytest.raises(MessageError) as caught:
        decode(encode(wrong()))
    assert caught.value.reason is Reason.MALFORMED
    assert f"{field} must " in caught.value.text
    assert "\n" not in caught.value.text


def test_texts_for_people_are_cleaned_and_cut() -> None:
    assert Goodbye(Reason.ERROR, "a\nb\x1b[2Jc").text == "a b [2Jc"
    assert Close(1, Reason.ERROR, "\ud800").text == " "
    assert Source("a", "b", 0.0, sentence="a\x1b[2Jb").sentence == "a [2Jb"
    cut = Source("é" * 2000, "b", 0.0).title
    assert len(cut.encode()) == MAX_LINE
    assert set(cut) == {"é"}


def test_a_reason_of_a_newer_version_is_still_an_end() -> None:
    body = msgpack.packb([Goodbye.TYPE, "quota_exceeded", "too many questions"])
    assert decode(body) == Goodbye(Reason.ERROR, "too many questions")


def test_long_arrays_are_refused_before_they_are_made() -> None:
    """A nest of array headers could otherwise make the decoder allocate gigabytes."""
    with pytest.raises(MessageError):
        decode(msgpack.packb([Open.TYPE, 1, "dragon", [0] * 513, []]))


@pytest.mark.parametrize("session", [-1, 2**32, "5", None, True])
def test_an_unreadable_session_is_none(session: Any) -> None:
    with pytest.raises(MessageError) as caught:
        decode(msgpack.packb([Draft.TYPE, session, 1]))
    assert caught.value.session is None


@given(MESSAGE, st.binary(min_size=1, max_size=5))
def test_trailing_bytes_are_refused(message: Message, tail: bytes) -> None:
    with pytest.raises(MessageError):
        decode(encode(message) + tail)


@pytest.mark.parametrize(
    "sources",
    [
        [["a", "b"]],
        [["a", "b", "c", 1.0, "d"]],
        [7],
        [[1, 2, 3, 4, 5]],
        "ab",
        [["a", "b", 0.0, 0.0, "c"]] * 300,
    ],
)
@pytest.mark.parametrize("form", [lambda a: [a, []], lambda a: [[], a], lambda a: a, lambda a: [a]])
def test_ill_formed_attributions(sources: Any, form: Callable[[Any], Any]) -> None:
    with pytest.raises(MessageError) as caught:
        decode(msgpack.packb([Close.TYPE, 1, "finished", "", 0, form(sources)]))
    assert caught.value.session == 1


RECORDED = (Path(__file__).parent / "messages.hex").read_text().splitlines()
"""A line for each message: its type, its bytes."""

MESSAGES = (
    Hello(10, bytes(16), "device", "tok", 1024, "a model", "dragonrt 0.1.0", "w", 2**40),
    Authenticate(bytes(range(32))),
    Ping(7, 10**6, bytes(3)),
    Pong(7, 10**6, 40),
    Goodbye(Reason.SHUTDOWN, "ends\nnow"),
    Open(
        2**32 - 1,
        "dragon",
        pack(
            Question(
                prompt="Wer heißt so?",
                instructions="Be brief.",
                history=(("a", "b"), ("é", "")),
                seed=2**64 - 1,
                sampler=Sampler(0.7, 40, 0.9, 0.05),
                stop_tokens=(2, 2**31 - 1),
                relevance_temperature=0.05,
                accepted=(1, 70000),
            )
        ),
        pack(DragonSettings(run_ahead=7, follow=False, traffic="constant:20ms")),
    ),
    Opened(1, 300, 12, 34567, "evidence"),
    Draft(3, 17, 2**63 + 5, 4321, -1.25, 45123, 4, 2**31, bytes(10)),
    Draft(3, 17, 5, 4321, 0.5, 0, 4, 1, b"\xff", 60_000_000, 61_000_000, -0.5),
    Target(3, 17, 2**64 - 1, 9, "cloud", 5, 6),
    Close(
        4,
        Reason.FINISHED,
        "done",
        250,
        Attribution((Source("Title", "file.txt", 0.75, 3.5, "One."),), ("42",), ("7", "8")),
    ),
    Close(4, Reason.BUSY, "full", 1000),
    Block(3, 12, 7, 2**31, 3, (100, 7, 2**20), (5, 6), bytes(13)),
    Verdict(3, 12, 2, 99, 1500),
    Upload(3, 12, -0.125, 1500, (b"a", b"bc")),
    Working(8),
    Coefficients(3, 0.5, 1.5, 0.25),
    Conclude(8),
    Open(1, "speculative", pack(Question(relevance_temperature=0.05)), pack(SpeculativeSettings())),
    Open(1, "federated", pack(Question(relevance_temperature=0.05)), pack(FederatedSettings())),
    Open(1, "sprinter", pack(Question(relevance_temperature=0.05)), pack(SprinterSettings())),
)


def test_the_bytes_of_every_message_are_as_recorded() -> None:
    assert {type(each) for each in MESSAGES} == {*CONNECTION_MESSAGES, *SESSION_MESSAGES}
    made = [f"{type(each).__name__} {encode(each).hex()}" for each in MESSAGES]
    assert made == RECORDED
    assert [decode(bytes.fromhex(line.split()[1])) for line in RECORDED] == list(MESSAGES)
