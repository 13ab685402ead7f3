"""The handshake, the sessions, and what a hostile other side can make of them: only errors."""

import random
from collections.abc import Callable, Iterable, Sequence

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragonrt.modes.dragon.drafts import Draft
from dragonrt.modes.messages import Target
from dragonrt.wire.connection import HANDSHAKE_LIMIT, Connection, Event, State
from dragonrt.wire.encoding import PACED, FrameDecoder, decode, encode, encode_frame
from dragonrt.wire.messages import (
    PROTOCOL_VERSION,
    Authenticate,
    Close,
    Goodbye,
    Hello,
    Message,
    Open,
    Opened,
    Ping,
    Pong,
)
from dragonrt.wire.reasons import HandshakeError, LocalProtocolError, Reason, RemoteProtocolError
from dragonrt.wire.sessions import SessionState

DEVICE = Hello(PROTOCOL_VERSION, b"d" * 16, "device", "3fa2" * 4, 1000, "small", "dragonrt 0.1.0")
CLOUD = Hello(PROTOCOL_VERSION, b"c" * 16, "cloud", "3fa2" * 4, 1000, "large", "dragonrt 0.1.0")
OPEN = Open(5, "dragon", (("prompt", "Who wrote it?"), ("seed", 7)), (("codec", "topp:0.8"),))
OPENED = Opened(5, 30, 1000, 2000)
DRAFT = Draft(5, 0, 2**63, 17, -1.5, 900, 0, 2**31, b"\x01\x02")
TARGET = Target(5, 0, 2**63, 17, "cloud")


def frame(*messages: Message) -> bytes:
    return b"".join(encode_frame(encode(message)) for message in messages)


def messages_in(data: bytes) -> list[Message]:
    decoder = FrameDecoder()
    decoder.feed(data)
    bodies = iter(decoder.next_body, None)
    return [decode(body) for body in bodies]


def pair(**options: int) -> tuple[Connection, Connection]:
    """Two connections whose handshake is done."""
    device, cloud = (
        Connection("device", DEVICE, b"key"),
        Connection("cloud", CLOUD, b"key", **options),
    )
    assert exchange(device, cloud) == ([CLOUD], [DEVICE])
    return device, cloud


def told(connection: Connection, data: bytes) -> list[Event]:
    """The events that the bytes complete, each of some bytes on the wire."""
    found = connection.receive_data(data)
    assert all(size > 0 for _, size in found)
    return [event for event, _ in found]


def exchange(a: Connection, b: Connection) -> tuple[list[Event], list[Event]]:
    """Carry waiting bytes both ways until none wait; what each side was told."""
    told_a: list[Event] = []
    told_b: list[Event] = []
    while True:
        from_a, from_b = a.data_to_send(), b.data_to_send()
        if not from_a and not from_b:
            return told_a, told_b
        told_b += told(b, from_a)
        told_a += told(a, from_b)


def opened(**options: int) -> tuple[Connection, Connection]:
    """Two connections with session 5 open."""
    device, cloud = pair(**options)
    assert told(cloud, device.send(OPEN)) == [OPEN]
    assert told(device, cloud.send(OPENED)) == [OPENED]
    return device, cloud


def refusal(a: Connection, b: Connection) -> tuple[HandshakeError, HandshakeError]:
    """The errors of both sides of a handshake that must fail, and checks that both are closed."""
    errors: dict[Connection, HandshakeError] = {}
    sent = True
    while sent:  # else two sides that agree after all would wait for ever
        sent = False
        for sender, receiver in ((a, b), (b, a)):
            data = sender.data_to_send()
            sent |= bool(data)
            if data and receiver not in errors:
                try:
                    receiver.receive_data(data)
                except HandshakeError as error:
                    errors[receiver] = error
    assert errors.keys() == {a, b}, "the handshake is done"
    assert a.closed
    assert b.closed
    return errors[a], errors[b]


def only_close(events: Sequence[object]) -> Close:
    """The one event there is."""
    (close,) = events
    assert isinstance(close, Close)
    return close


def test_handshake_byte_by_byte() -> None:
    device, cloud = Connection("device", DEVICE), Connection("cloud", CLOUD)
    events: list[Event] = []
    for _ in range(2):
        for byte in device.data_to_send():
            events += told(cloud, bytes([byte]))
        for byte in cloud.data_to_send():
            events += told(device, bytes([byte]))
    assert events == [CLOUD, DEVICE]


def test_hello_is_not_delivered_before_the_key_is_proven() -> None:
    device, cloud = Connection("device", DEVICE, b"key"), Connection("cloud", CLOUD, b"key")
    assert told(cloud, device.data_to_send()) == []
    assert cloud.state is State.AUTHENTICATE


@pytest.mark.parametrize(
    ("cloud", "reason"),
    [
        (replace(CLOUD, tokenizer="91bc" * 4), Reason.TOKENIZER),
        (replace(CLOUD, vocabulary=1001), Reason.VOCABULARY),
        (replace(CLOUD, vocabulary=999), Reason.VOCABULARY),
        (replace(DEVICE, nonce=b"e" * 16), Reason.ROLE),
    ],
)
def test_mismatch_gives_both_sides_the_same_line(cloud: Hello, reason: Reason) -> None:
    errors = refusal(Connection("device", DEVICE), Connection(cloud.role, cloud))
    assert [error.reason for error in errors] == [reason] * 2
    assert errors[0].text == errors[1].text


@pytest.mark.parametrize("keys", [(b"a", b"b"), (b"a", None), (None, b"b")])
def test_different_keys_are_refused_by_both(keys: tuple[bytes | None, bytes | None]) -> None:
    errors = refusal(Connection("device", DEVICE, keys[0]), Connection("cloud", CLOUD, keys[1]))
    assert [error.reason for error in errors] == [Reason.KEY] * 2


def test_proof_cannot_be_reflected() -> None:
    cloud = Connection("cloud", CLOUD, b"key")
    cloud.receive_data(frame(DEVICE))
    hello, authenticate = messages_in(cloud.data_to_send())
    assert hello == CLOUD
    with pytest.raises(HandshakeError):
        cloud.receive_data(frame(authenticate))


def test_another_version_is_named_whatever_its_hello_holds() -> None:
    cloud = Connection("cloud", CLOUD)
    with pytest.raises(HandshakeError) as caught:
        cloud.receive_data(
            encode_frame(msgpack.packb([Hello.TYPE, PROTOCOL_VERSION + 1, "something new"]))
        )
    assert caught.value.reason is Reason.VERSION
    assert messages_in(cloud.data_to_send()) == [CLOUD, Goodbye(Reason.VERSION, caught.value.text)]


def test_goodbye_during_the_handshake_is_the_other_sides_line() -> None:
    device = Connection("device", DEVICE)
    with pytest.raises(HandshakeError):
        device.receive_data(frame(Goodbye(Reason.BUSY, "too many devices")))
    assert device.closed


@pytest.mark.parametrize(
    "message", [OPEN, DRAFT, Ping(1, 2), Pong(1, 2, 3), Close(5, Reason.ERROR)]
)
@pytest.mark.parametrize("said_hello", [False, True])
def test_nothing_else_is_taken_from_a_stranger(message: Message, said_hello: bool) -> None:
    cloud = Connection("cloud", CLOUD)
    if said_hello:
        cloud.receive_data(frame(DEVICE))
    with pytest.raises(HandshakeError) as caught:
        cloud.receive_data(frame(message))
    assert caught.value.reason is Reason.OUT_OF_ORDER
    assert isinstance(messages_in(cloud.data_to_send())[-1], Goodbye)


def test_a_stranger_may_send_only_short_frames() -> None:
    cloud = Connection("cloud", CLOUD)
    with pytest.raises(HandshakeError) as caught:
        cloud.receive_data((HANDSHAKE_LIMIT + 1).to_bytes(4, "big"))
    assert caught.value.reason is Reason.TOO_LARGE


def test_long_frames_are_taken_right_behind_the_handshake() -> None:
    device, cloud = Connection("device", DEVICE), Connection("cloud", CLOUD)
    cloud.receive_data(device.data_to_send())
    device.receive_data(cloud.data_to_send())
    long = replace(DRAFT, payload=bytes(range(256)) * 40)
    data = device.data_to_send() + device.send(OPEN) + device.send(long)
    assert told(cloud, data) == [DEVICE, OPEN, long]


def test_eof() -> None:
    device, cloud = pair()
    assert [event.reason for event, _ in device.eof() if isinstance(event, Goodbye)] == [
        Reason.LOST
    ]
    assert device.eof() == []
    cloud.receive_data(b"\x00\x00")
    ((event, _),) = cloud.eof()
    assert isinstance(event, Goodbye)
    assert event.reason is Reason.LOST
    with pytest.raises(HandshakeError):
        Connection("device", DEVICE).eof()


def test_goodbye_ends_everything() -> None:
    device, cloud = opened()
    goodbye = Goodbye(Reason.SHUTDOWN, "the cloud is stopping")
    data = cloud.send(goodbye)
    assert told(device, data + b"\xff" * 100) == [goodbye]
    assert told(device, b"\xff" * 100) == []
    assert device.eof() == cloud.eof() == []
    assert device.sessions == cloud.sessions == ()
    for connection in (device, cloud):
        with pytest.raises(LocalProtocolError):
            connection.send(goodbye)


def test_ping_is_answered_with_the_bytes_that_arrived() -> None:
    device, cloud = pair()
    data = device.send(Ping(3, 12345, bytes(1000)))
    assert len(data) > 1000, "padding must not be compressed"
    assert told(cloud, data) == []
    assert told(device, cloud.data_to_send()) == [Pong(3, 12345, len(data))]


def test_a_session_from_open_to_close() -> None:
    device, cloud = pair()
    assert told(cloud, device.send(OPEN)) == [OPEN]
    assert device.session_state(5) is SessionState.ASKED
    assert cloud.session_state(5) is SessionState.INVITED
    assert told(cloud, device.send(DRAFT)) == [DRAFT], "the asking side drafts at once"
    assert told(device, cloud.send(OPENED)) == [OPENED]
    for message in (DRAFT, TARGET):
        assert told(device, cloud.send(message)) == [message]
        assert told(cloud, device.send(message)) == [message]
    close = Close(5, Reason.FINISHED)
    assert told(cloud, device.send(close)) == [close]
    assert device.sessions == cloud.sessions == ()


def test_unknown_session_is_answered_once_and_harms_nothing() -> None:
    device, cloud = opened()
    other = replace(DRAFT, session=6)
    assert told(cloud, frame(other, other) + device.send(DRAFT)) == [DRAFT]
    close = Close(6, Reason.UNKNOWN_SESSION, "there is no session 6 here")
    answer = cloud.data_to_send()
    assert messages_in(answer) == [close]
    assert told(device, answer) == []
    assert told(cloud, device.data_to_send()) == []


@pytest.mark.parametrize("message", [OPEN, OPENED])
def test_out_of_order_closes_that_session_only(message: Open | Opened) -> None:
    device, cloud = opened()
    cloud.receive_data(device.send(replace(OPEN, session=9)))
    close = only_close(told(cloud, frame(message)))
    assert (close.session, close.reason) == (5, Reason.OUT_OF_ORDER)
    assert told(device, cloud.data_to_send()) == [close]
    assert cloud.sessions == device.sessions == (9,)


@pytest.mark.parametrize("message", [DRAFT, TARGET])
def test_the_answering_side_may_not_draft_before_opened(message: Message) -> None:
    device, _ = pair()
    device.send(OPEN)
    assert only_close(told(device, frame(message))).reason is Reason.OUT_OF_ORDER


def test_late_messages_of_a_session_we_closed_are_ignored() -> None:
    device, cloud = opened()
    cloud.send(Close(5, Reason.CANCELLED))
    assert told(cloud, frame(DRAFT, TARGET, Close(5, Reason.CANCELLED))) == []
    assert cloud.data_to_send() == b""
    assert told(cloud, frame(OPEN)) == [OPEN], "the number is free again"
    ended = Close(5, Reason.FINISHED)
    assert told(cloud, frame(ended, DRAFT)) == [ended], "this one the other side closed"
    assert only_close(messages_in(cloud.data_to_send())).reason is Reason.UNKNOWN_SESSION
    assert device.closed is False


def test_closed_sessions_are_remembered_only_for_a_while() -> None:
    device, cloud = pair()
    for session in range(256 + 1):
        cloud.receive_data(frame(replace(OPEN, session=session)))
        cloud.send(Close(session, Reason.ERROR))
    cloud.receive_data(frame(replace(DRAFT, session=1)))
    assert cloud.data_to_send() == b""
    cloud.receive_data(frame(replace(DRAFT, session=0)))
    assert only_close(messages_in(cloud.data_to_send())).reason is Reason.UNKNOWN_SESSION
    assert not device.closed


def test_too_many_sessions_are_refused_as_busy() -> None:
    device, cloud = opened(max_sessions=1)
    assert told(cloud, device.send(replace(OPEN, session=6))) == []
    assert told(cloud, device.send(replace(DRAFT, session=6))) == []
    close = only_close(told(device, cloud.data_to_send()))
    assert (close.session, close.reason) == (6, Reason.BUSY)
    assert cloud.sessions == (5,)
    cloud.receive_data(device.send(Close(5, Reason.FINISHED)))
    assert len(told(cloud, device.send(replace(OPEN, session=7)))) == 1


@pytest.mark.parametrize("change", [{3: -1}, {4: 1000}, {5: float("nan")}, {7: "text"}])
def test_malformed_session_message_closes_only_its_session(change: dict[int, object]) -> None:
    device, cloud = opened()
    cloud.receive_data(device.send(replace(OPEN, session=9)))
    values = list(msgpack.unpackb(encode(DRAFT)))
    for index, value in change.items():
        values[index] = value
    close = only_close(told(cloud, encode_frame(msgpack.packb(values))))
    assert (close.session, close.reason) == (5, Reason.MALFORMED)
    assert told(device, cloud.data_to_send()) == [close]
    assert cloud.sessions == device.sessions == (9,)


def test_malformed_open_is_answered() -> None:
    device, cloud = pair()
    values = list(msgpack.unpackb(encode(OPEN)))
    values[3] = [["seed"]]
    device.send(OPEN)
    assert told(cloud, encode_frame(msgpack.packb(values))) == []
    assert only_close(told(device, cloud.data_to_send())).reason is Reason.MALFORMED


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x90",
        b"\x91\x63",
        b"\x91\xc3",
        b"\x80",
        b"\x81\x01\x02",
        b"\x92\x07\xc3",
        b"\x91" * 2000,
        b"\xdd\xff\xff\xff\xff",
        b"\x92\x02" + b"\xd4\x01\x00",
        frame(DEVICE)[4:],
        frame(Authenticate(bytes(32)))[4:],
    ],
)
def test_garbage_closes_the_connection_with_a_goodbye(body: bytes) -> None:
    _, cloud = opened()
    with pytest.raises(RemoteProtocolError) as caught:
        cloud.receive_data(encode_frame(body))
    assert messages_in(cloud.data_to_send()) == [Goodbye(caught.value.reason, caught.value.text)]
    assert cloud.closed
    assert cloud.sessions == ()


@pytest.mark.parametrize(
    "attempt",
    [
        lambda device: device.send(DEVICE),
        lambda device: device.send(Authenticate(bytes(32))),
        lambda device: device.send(replace(DRAFT, session=6)),
        lambda device: device.send(OPEN),
        lambda device: device.send(replace(DRAFT, token=1000)),
        lambda _: Connection("cloud", DEVICE),
        lambda _: Connection("device", DEVICE).send(OPEN),
        lambda _: Connection("device", DEVICE).send(Ping(0, 0)),
    ],
)
def test_local_misuse_is_another_error(attempt: Callable[[Connection], object]) -> None:
    device, cloud = opened()
    with pytest.raises(LocalProtocolError):
        attempt(device)
    assert told(cloud, device.send(DRAFT)) == [DRAFT]


def test_the_traffic_of_both_sides_agrees() -> None:
    device, cloud = opened()
    for connection, other in ((device, cloud), (cloud, device)):
        assert connection.traffic().sent == other.traffic().received > 0


def test_padded_frames_count_whole_with_their_padding() -> None:
    device, cloud = opened()
    before = device.traffic()
    device.pace()
    assert device.send(DRAFT) == b""
    assert told(cloud, device.next_padded_frame()) == [DRAFT]
    assert told(cloud, device.next_padded_frame()) == []
    sent, received = device.traffic(), cloud.traffic()
    assert sent.sent - before.sent == 2 * PACED
    assert PACED < sent.padding_sent < 2 * PACED
    assert (received.received, received.padding_received) == (sent.sent, sent.padding_sent)


def test_a_half_sent_message_arrives_after_the_constant_rate() -> None:
    device, cloud = opened()
    long = replace(DRAFT, payload=random.Random(0).randbytes(2 * PACED))
    device.pace()
    assert device.send(long) == b""
    assert told(cloud, device.next_padded_frame()) == []
    device.unpace()
    assert told(cloud, device.send(DRAFT)) == [long, DRAFT]


def feed(connection: Connection, chunks: Iterable[bytes]) -> list[Event]:
    """Everything that comes out; any exception but a RemoteProtocolError fails the test."""
    events: list[Event] = []
    for chunk in chunks:
        try:
            events += told(connection, chunk)
        except RemoteProtocolError:
            assert isinstance(messages_in(connection.data_to_send())[-1], Goodbye)
            assert connection.closed
    return events


@given(st.lists(st.binary(max_size=60)))
def test_random_bytes_raise_only_remote_errors(chunks: list[bytes]) -> None:
    feed(Connection("cloud", CLOUD), chunks)
    feed(opened()[1], chunks)


VALUES: st.SearchStrategy[object] = st.one_of(
    st.sampled_from([None, True, -1, 2**64 - 1, float("nan"), b"", "", [], [[]], [["", ""]], {}]),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.binary(max_size=9),
    st.text(max_size=9),
)


@given(
    st.sampled_from([OPEN, OPENED, DRAFT, TARGET, Close(5, Reason.ERROR), Ping(1, 2), CLOUD]),
    st.lists(st.tuples(st.integers(0, 20), VALUES), max_size=3),
    st.integers(-2, 2),
)
def test_mutated_messages_raise_only_remote_errors(
    message: Message, changes: list[tuple[int, object]], resize: int
) -> None:
    values = msgpack.unpackb(encode(message))
    for index, value in changes:
        values[index % len(values)] = value
    values = values[:resize] if resize < 0 else values + [0] * resize
    device, cloud = opened()
    feed(cloud, [encode_frame(msgpack.packb(values))])
    if not cloud.closed:
        feed(device, [cloud.data_to_send()])
        assert not device.closed, "an answer to a fault must itself be valid"
