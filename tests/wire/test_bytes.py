"""The bytes of messages of every type: another version here would not be understood elsewhere."""

from pathlib import Path

from dragonrt.modes.dragon.drafts import Coefficients, Draft
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.messages import Block, Target, Upload, Verdict
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.wire.encoding import decode, encode
from dragonrt.wire.fields import pack
from dragonrt.wire.messages import (
    CONNECTION_MESSAGES,
    SESSION_MESSAGES,
    Attribution,
    Authenticate,
    Close,
    Conclude,
    Goodbye,
    Hello,
    Open,
    Opened,
    Ping,
    Pong,
    Source,
    Working,
)
from dragonrt.wire.reasons import Reason

RECORDED = (Path(__file__).parent / "messages.hex").read_text().splitlines()
"""A line for each message: its type, its bytes."""

MESSAGES = (
    Hello(9, bytes(16), "device", "tok", 1024, "a model", "dragonrt 0.1.0", "w", "c", 2**40),
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
    Open(
        1,
        "speculative",
        pack(Question(relevance_temperature=0.05)),
        pack(SpeculativeSettings()),
    ),
    Open(1, "federated", pack(Question(relevance_temperature=0.05)), pack(FederatedSettings())),
    Open(1, "sprinter", pack(Question(relevance_temperature=0.05)), pack(SprinterSettings())),
)


def test_the_bytes_of_every_message_are_as_recorded() -> None:
    assert {type(each) for each in MESSAGES} == {*CONNECTION_MESSAGES, *SESSION_MESSAGES}
    made = [f"{type(each).__name__} {encode(each).hex()}" for each in MESSAGES]
    assert made == RECORDED
    assert [decode(bytes.fromhex(line.split()[1])) for line in RECORDED] == list(MESSAGES)
