"""The baselines' own messages: what is sent is what arrives, and nothing else is understood."""

import asyncio
import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.link.memory import memory_streams
from dragonrt.testing import loop
from dragonrt.wire.connection import Connection
from dragonrt.wire.frames import encode_frame
from dragonrt.wire.limits import NONCE_BYTES
from dragonrt.wire.messages import PROTOCOL_VERSION, Hello
from dragonrt.wire.reasons import HandshakeError, RemoteProtocolError
from scripts.papers.dragon.baselines.exchange import (
    KINDS,
    BaselineError,
    Channel,
    decode,
    encode,
    pack,
    unpack,
)

VALUES = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    bytes: st.binary(max_size=99),
    int: st.integers(0, 2**31),
    float: st.floats(allow_nan=False),
}


@given(st.data(), st.sampled_from(sorted(KINDS)))
def test_what_is_encoded_is_decoded(data: st.DataObject, kind: str) -> None:
    fields = [data.draw(VALUES[each]) for each in KINDS[kind]]
    assert decode(encode(kind, *fields)) == (kind, fields)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_message_or_are_refused(body: bytes) -> None:
    with contextlib.suppress(BaselineError):
        kind, fields = decode(body)
        assert decode(encode(kind, *fields)) == (kind, fields)


@pytest.mark.parametrize("fields", [[], ["x"], [1, 2], [True], [1.5]])
def test_other_fields_than_the_messages_own_are_refused(fields: list[object]) -> None:
    with pytest.raises(BaselineError):
        decode(msgpack.packb(["Token", *fields]))


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_tokens_are_packed_in_four_bytes_each(tokens: list[int]) -> None:
    assert unpack(pack(tokens)) == tokens
    with pytest.raises(BaselineError):
        unpack(pack(tokens) + b"e")


def test_sides_with_different_models_part() -> None:
    async def greet() -> tuple[object, object]:
        one, other = map(Channel, memory_streams())
        return await asyncio.gather(one.greet("a"), other.greet("b"), return_exceptions=True)

    assert all(isinstance(error, BaselineError) for error in loop.run(greet()))


def test_a_message_out_of_turn_and_a_hang_up_are_errors() -> None:
    async def talk() -> None:
        one, other = map(Channel, memory_streams())
        for receive in (other.receive, other.receive_until_end):
            await one.send("Token", 1)
            with pytest.raises(BaselineError):
                await receive("Text")
        await one.close()
        with pytest.raises(BaselineError):
            await other.receive("Text")

    loop.run(talk())


@pytest.mark.parametrize(
    "message",
    [("Greeting", "p", "m"), ("BaselineRequest", "kv", "", 1, 0, 0.0, 1)],
)
def test_a_normal_cloud_understands_none_of_it(message: tuple[object, ...]) -> None:
    hello = Hello(PROTOCOL_VERSION, bytes(NONCE_BYTES), "cloud", "t", 8, "m", "s")
    cloud = Connection("cloud", hello)
    with pytest.raises((HandshakeError, RemoteProtocolError)):
        cloud.receive_data(encode_frame(msgpack.packb(message)))
