"""What crosses from a device to a cloud in one answer, and two attacks on it (SPEC 1.10).

The cloud reads every message; somebody on the wire sees sizes and times. Notes with canaries, words
that stand nowhere else, show what came through.
"""

import asyncio
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Step, codec, decode_distribution
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Layer, Stream
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.wire.encoding import decode
from dragonrt.wire.frames import FrameDecoder
from dragonrt.wire.messages import Draft, Message, Target
from scripts.papers.arena import Arena, Given, emulated

QUIET_S = 0.1
"""Before a question and after its answer, so that nothing else is seen."""
EVENTS = 120
"""So many sizes and times, from the question on, are what a question is named by."""


@dataclass(frozen=True, slots=True)
class Seen:
    """So many bytes that left the device (`up`) or came to it, at a time in seconds."""

    time_s: float
    up: bool
    size: int


class Eavesdropper(Layer):
    """Implements Stream around one end of a stream; `seen` is what passed it, `sent` what left."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.seen: list[Seen] = []
        self.sent = bytearray()
        self._now = asyncio.get_running_loop().time

    async def receive(self) -> bytes:
        data = await self._stream.receive()
        self.seen.append(Seen(self._now(), False, len(data)))
        return data

    def write(self, data: bytes) -> None:
        self.sent += data
        self.seen.append(Seen(self._now(), True, len(data)))
        self._stream.write(data)


@dataclass(frozen=True, slots=True)
class Overheard:
    """One answer: the device's own, what the cloud was sent, what was seen of both."""

    given: Given
    messages: Sequence[Message]
    seen: Sequence[Seen]

    def listed(self, vocabulary: int) -> dict[int, float]:
        """Return every token that crossed, with its probabilities summed over messages."""
        question, settings = self.given.answer.question, self.given.answer.settings
        assert isinstance(settings, DragonSettings), "only mode dragon discloses by levels"
        code = codec(settings.codec_for(question.sampler), vocabulary)
        found: dict[int, float] = {}
        for message in self.messages:
            match message:
                case Draft():
                    p = decode_distribution(code, message.payload, Step(message.step))
                    pairs = dict(zip(p.ids.tolist(), p.probabilities.tolist(), strict=True))
                case Target(token=token):
                    pairs = {token: 1.0}
                case _:
                    continue
            for token, probability in pairs.items():
                found[token] = found.get(token, 0.0) + probability
        return found

    @property
    def drafted(self) -> list[int]:
        """The tokens of all drafts and decisions that crossed, in their order."""
        return [each.token for each in self.messages if isinstance(each, Draft | Target)]


async def overheard(
    sides: Sequence[SimulatedSide],
    question: Question,
    settings: DragonSettings,
    marker: tuple[int, ...],
    link: LinkProfile,
    link_seed: int,
) -> Overheard:
    """Ask the device, the first of the sides, and listen until a cadence has ended."""
    device, cloud = sides
    listeners: list[Eavesdropper] = []

    def emulate(stream: Stream) -> Stream:
        listeners.append(Eavesdropper(emulated(link, link_seed)(stream)))
        return listeners[0]

    serving = SimulatedCloud(cloud)
    async with linked_device(serving, device, emulate) as linked:
        await asyncio.sleep(QUIET_S)
        (listener,) = listeners
        listener.seen.clear()
        given = await Arena(device, linked.connectors).ask(question, settings, marker=marker)
        await linked.connector.settled()
        await asyncio.sleep(QUIET_S)
        frames = FrameDecoder()
        frames.feed(bytes(listener.sent))
        messages = [decode(body) for body in iter(frames.next_body, None)]
        found = Overheard(given, messages, tuple(listener.seen))
    await serving.wait_idle()
    return found


def words(text: str) -> set[str]:
    """Return the words of a text: letters and digits, at least three, in small letters."""
    return set(re.findall(r"[^\W_]{3,}", text.lower()))


# What somebody on the wire sees.


def features(seen: Sequence[Seen]) -> NDArray[np.float64]:
    """Return times and signed sizes of the first EVENTS, then how much there was in all."""
    start_s = seen[0].time_s
    found = np.zeros(2 * EVENTS + 5)
    for place, each in enumerate(seen[:EVENTS]):
        found[2 * place] = each.time_s - start_s
        found[2 * place + 1] = each.size if each.up else -each.size
    up = [each.size for each in seen if each.up]
    down = [each.size for each in seen if not each.up]
    found[-5:] = len(up), len(down), sum(up), sum(down), seen[-1].time_s - start_s
    return found


def named(observed: Sequence[NDArray[np.float64]], asked: Sequence[int], folds: int) -> list[bool]:
    """Return whether a classifier names the question of each observation from the others."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    forest = RandomForestClassifier(n_estimators=100, random_state=0)
    split = StratifiedKFold(folds, shuffle=True, random_state=0)
    guesses = cross_val_predict(forest, np.stack(observed), np.asarray(asked), cv=split)
    return [bool(guess == right) for guess, right in zip(guesses, asked, strict=True)]


# Notes that nobody has written.


@dataclass(frozen=True, slots=True)
class CanaryNote:
    """A private note, a question that it answers, and the word that stands in no other one."""

    text: str
    question: str
    canary: str


_FORMS = (
    (
        "When does the {thing} for {name} begin?",
        "The {thing} for {name} begins on {day} at {hour}:{minute} in {place}. "
        "{name} needs the {thing} card with the number {canary}.",
    ),
    (
        "What did {name} promise to do?",
        "{name} promised to {do} the {thing} and paint the {other} before {day}. "
        "The door code of {name} is {canary}.",
    ),
    (
        "What should I bring to {name}?",
        "Bring the old {thing} and the {other} to {name} on {day}. "
        "{name} lives in {place}, and the bell says {canary}.",
    ),
    (
        "Where is the key for the {thing}?",
        "The key for the {thing} hangs behind the {other}, says {name}. "
        "The lock of the {thing} opens with {canary}.",
    ),
    (
        "Why is {name} late?",
        "{name} is late because the train to {place} stood still for {hour} hours. "
        "{name} sits in the carriage {canary} next to the {thing}.",
    ),
)
_NAMES = (
    *("Lena", "Tom", "Nora", "Emil", "Irene", "Karim", "Paul", "Olga", "Hugo", "Maria", "Ida"),
    *("Anna", "Ben", "Clara", "David", "Ella", "Felix", "Greta", "Henry", "Iris", "Jonas", "Kate"),
)
_THINGS = (
    *("boat", "tent", "ladder", "piano", "bicycle", "garden", "stove", "camera", "violin"),
    *("lamp", "cellar", "kitchen", "radio", "shed", "sofa", "table", "window", "printer"),
)
_PLACES = ["Lisbon", "Oslo", "Tarnby", "Norholm", "Westfield", "Harbor", "Milan", "Dublin"]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_DOINGS = ["repair", "clean", "sell", "measure", "move"]


def canary_notes(count: int, seed: int) -> list[CanaryNote]:
    """Return so many notes of which no two have the same question or canary.

    Raises ValueError if the forms do not give so many.
    """
    draw = random.Random(f"canaries {seed}")
    found: dict[str, CanaryNote] = {}
    for _ in range(100 * count):
        if len(found) == count:
            return list(found.values())
        question, text = draw.choice(_FORMS)
        thing, other = draw.sample(_THINGS, 2)
        canary = "".join(draw.choices("bcdfghjklmnprstvz", k=3)) + str(draw.randrange(100, 1000))
        fields = {
            "name": draw.choice(_NAMES),
            "thing": thing,
            "other": other,
            "place": draw.choice(_PLACES),
            "day": draw.choice(_DAYS),
            "do": draw.choice(_DOINGS),
            "hour": draw.randrange(2, 20),
            "minute": draw.choice(("00", "15", "30", "45")),
            "canary": canary,
        }
        note = CanaryNote(text.format(**fields), question.format(**fields), canary)
        found.setdefault(note.question, note)
    raise ValueError(f"there are no {count} different notes of these forms")


# What the cloud makes of the messages.


def membership(crossed: dict[int, float], tokens: Iterable[int], known: set[int]) -> float:
    """Return how much of a document crossed: the summed probability of its tokens.

    `known` tokens, such as those of the question, say nothing.
    """
    return sum(crossed.get(token, 0.0) for token in set(tokens) - known)


def auc(members: Sequence[float], others: Sequence[float]) -> float:
    """Return the chance that a document of the store scores higher than one that is not in it."""
    ours, theirs = np.asarray(members)[:, None], np.asarray(others)[None, :]
    return float(np.mean((ours > theirs) + 0.5 * (ours == theirs)))


def auc_interval(members: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Return its bootstrap 95 % interval over trials, each with a document of either kind."""
    draw, count = np.random.default_rng(0), len(members)
    both = np.asarray(members), np.asarray(others)
    values = []
    for _ in range(1000):
        chosen = draw.integers(count, size=count)
        values.append(auc(both[0][chosen].tolist(), both[1][chosen].tolist()))
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)
