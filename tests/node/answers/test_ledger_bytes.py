"""The ledger says of an answer what its recorded bytes say, in every mode and at every level."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from dragonrt.control.scheduler import Aggregator
from dragonrt.distributions import Codec, codec
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.models import LinkModel
from dragonrt.link.stream import Stream
from dragonrt.modes import entry_of
from dragonrt.modes.dragon import DragonMode
from dragonrt.modes.dragon.machine import Dragon
from dragonrt.modes.dragon.settings import DragonResources, DragonSettings, DragonSetup
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.messages import Target
from dragonrt.modes.mode import Effects, Input, Joined
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.node.answers.client_session import Answer
from dragonrt.privacy.disclosure import Disclosure, redacted
from dragonrt.testing.faults import Cut, CutStream
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedDevice, SimulatedSide, linked_device
from dragonrt.testing.scripted import Script, ScriptedParts
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import TokenDecided
from dragonrt.wire import messages as wire
from dragonrt.wire.fields import unpack
from scripts.campaign.liar import Read, RecordingStream, messages
from tests.contract.scenes import registered

VOCABULARY = 16
MARKER = ScriptedParts.marker
QUESTION = Question(
    prompt="où?",
    instructions="short",
    history=(("who?", "Tom is a heron"), ("and?", "no")),
    shown=("Tom…", "no"),
    seed=5,
    max_tokens=24,
    reweight_every=1,
)
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"traffic": "plain"},
    "padded": {"traffic": "padded"},
    "in cadence": {"traffic": "constant:20ms:40"},
    "dense": {"traffic": "plain", "codec": "dense:fp16"},
    "one token": {"codec": "topk:1:residual", "follow": False},
}
LEVELS = {
    f"{level} {name}": DragonSettings(disclose=level, **how)
    for level in Disclosure
    for name, how in WAYS.items()
}
CASES: dict[str, Settings] = {
    **LEVELS,
    "the device decides": DragonSettings(aggregator=Aggregator.DEVICE),
    "the cloud decides": DragonSettings(aggregator=Aggregator.CLOUD),
    "ids": SpeculativeSettings(),
    "the cloud decodes": SpeculativeSettings(cloud_decodes=True),
    "lattice": SpeculativeSettings(rule="rejection", codec="ksqs:6:40"),
    "a coarse lattice": SpeculativeSettings(rule="rejection", codec="ksqs:1:1"),
    "thresholds": SpeculativeSettings(rule="rejection", codec="csqs:0.01:20"),
    "sparse blocks": SpeculativeSettings(rule="rejection", codec="topk:1:renorm"),
    "dense blocks": SpeculativeSettings(rule="rejection", codec="dense:fp16"),
    "sprinter": SprinterSettings(codec="topk:4:renorm"),
    "sprinter of one": SprinterSettings(codec="topk:1:renorm"),
    "workers": FederatedSettings(block_tokens=3),
}
TOKENS_ALONE = {"ids", "the cloud decodes", "workers"}


@dataclass
class Recorded:
    """An answer, all bytes of its connections, and how many of these it took."""

    answer: Answer
    tapes: list[bytearray]
    taken: int

    def read(self, code: Codec | None) -> Read:
        found = Read()
        for tape in self.tapes:
            for message in messages(bytes(tape)):
                found.take(message, code)
        return found


@asynccontextmanager
async def device_of(
    settings: Settings, tapes: list[bytearray], cut: Cut | None
) -> AsyncIterator[SimulatedDevice]:
    """A device with two workers or one cloud; its first connection suffers the cut."""
    script = Script(3, VOCABULARY, disagreement=1.5, stop=0.01)
    names = ["worker 0", "worker 1"] if entry_of(settings).several else ["cloud"]
    device = SimulatedSide("device", lambda _: script)
    clouds = [SimulatedCloud(SimulatedSide("cloud", lambda _: script)) for _ in names]

    def emulate(stream: Stream) -> Stream:
        if cut is not None and not tapes:
            stream = CutStream(stream, cut)
        tapes.append(bytearray())
        ways = (LinkModel(latency_s=0.02, direction=way) for way in ("up", "down"))
        return RecordingStream(EmulatedStream(stream, *ways), tapes[-1], bytearray())

    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(linked_device(cloud, device, emulate))
            for cloud in clouds
        ]
        connectors = {name: each.connector for name, each in zip(names, made, strict=True)}
        yield SimulatedDevice(device, connectors)
    for cloud in clouds:
        await cloud.kill()


def recorded(settings: Settings, question: Question = QUESTION, cut: Cut | None = None) -> Recorded:
    async def ask() -> Recorded:
        tapes: list[bytearray] = []
        async with device_of(settings, tapes, cut) as device:
            asking = device.asking(question, settings)
            before = sum(map(len, tapes))
            answer = await asking.ask()
            return Recorded(answer, tapes, sum(map(len, tapes)) - before)

    return run(ask())


def code_of(settings: Any) -> Codec:
    """What decodes the payloads of a device alone."""
    name = settings.codec
    if isinstance(settings, FederatedSettings):
        name = "ids"
    return codec(name, VOCABULARY)


def check(found: Recorded, settings: Settings) -> Read:
    """Compare the ledger with what the recorded bytes say; returns that."""
    seen, told = found.read(code_of(settings)), AnswerCounts.of(found.answer.records)
    marker = MARKER if settings.redacts else ()
    assert told.question_bytes == seen.question
    assert told.history_bytes == seen.history
    assert told.tokens_sent == seen.others(marker)
    assert told.distributions_sent == seen.distributions
    assert told.documents_named == seen.documents == 0
    assert found.answer.bytes_sent == found.taken
    return seen


@pytest.mark.parametrize("name", CASES)
def test_it_says_what_the_recorded_bytes_say(name: str) -> None:
    found = recorded(CASES[name])
    seen = check(found, CASES[name])
    assert "heron" not in "".join(seen.texts)
    assert seen.opened == len(found.tapes)
    assert seen.question == seen.opened * len("où?short".encode())
    assert seen.tokens
    alone = name in TOKENS_ALONE or name.startswith(("answer", "redacted"))
    assert (seen.distributions == 0) == alone


@pytest.mark.parametrize("level", Disclosure)
def test_a_session_that_is_opened_again_is_in_it(level: Disclosure) -> None:
    settings = replace(LEVELS[f"{level} plain"], on_loss="wait")
    seen = check(recorded(settings, cut=Cut("device", after_s=0.4)), settings)
    assert seen.opened == 2


class Careless(Dragon):
    """A mode that sends each token as it is drafted, and all of them again."""

    session = 0

    @override
    def disclosed(self, question: Question) -> Question:
        return question.resumed(tuple(self.decided))

    @override
    def handle(self, happened: Input, now: float) -> Effects:
        if isinstance(happened, Joined):
            self.session = happened.session
        effects = super().handle(happened, now)
        for event in effects.events:
            if isinstance(event, TokenDecided):
                sent = Target(self.session, event.step, 0, event.token, "device")
                effects.send.append(("cloud", sent))
        return effects


@dataclass(frozen=True, slots=True, kw_only=True)
class CarelessSettings(DragonSettings):
    """Those of that mode."""

    mode: ClassVar[str] = "careless"


class CarelessMode(DragonMode):
    settings = CarelessSettings

    @override
    def device(
        self, question: Question, settings: DragonSettings, resources: DragonResources
    ) -> Dragon:
        return Careless(DragonSetup("device", question, settings, resources))


@pytest.mark.parametrize("cut", [None, Cut("device", after_s=0.4)])
@pytest.mark.parametrize("level", [Disclosure.ANSWER, Disclosure.REDACTED])
def test_a_careless_mode_sends_no_token_that_is_withheld(
    level: Disclosure, cut: Cut | None
) -> None:
    settings = CarelessSettings(disclose=level, withhold=1.0, codec="topk:16:residual")
    with registered(CarelessMode()):
        found = recorded(settings, cut=cut)
        check(found, settings)
    decided = [(event.token, event.withheld) for _, event in found.answer.decisions]
    told = redacted(decided, MARKER if settings.redacts else ())
    assert any(withheld for _, withheld in decided) == settings.redacts
    for tape in found.tapes:
        for message in messages(bytes(tape)):
            match message:
                case Target(step=step, token=token):
                    assert told[step] == token
                case wire.Open(question=sent):
                    accepted = unpack(Question, sent).accepted
                    assert [*accepted] == told[: len(accepted)]
                case wire.SessionMessage():
                    assert isinstance(message, wire.Conclude | wire.Close)
