"""What crosses from a device to a cloud in one answer, and what somebody may make of it.

Two who look: the cloud, which reads every message, and somebody on the wire, who sees sizes and
times. Notes with canaries, words that stand nowhere else, say what came through. Pure but for
`overheard`, which has a device ask.
"""

import asyncio
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Step, codec, decode_distribution
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.wire.encoding import decode
from dragonrt.wire.frames import FrameDecoder
from dragonrt.wire.messages import Draft, Message, Open, Target
from scripts.papers.arena import Arena, Given, emulated
from scripts.papers.dragon.eavesdropper import Eavesdropper, Seen

QUIET_S = 0.1
"""Before a question and after its answer, so that nothing else is seen."""
EVENTS = 120
"""So many sizes and times, from the question on, are what a question is named by."""


class _Listener(Eavesdropper):
    """Keeps what left the device, too: the cloud reads it."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.sent = bytearray()

    def write(self, data: bytes) -> None:
        self.sent += data
        super().write(data)


@dataclass(frozen=True, slots=True)
class Overheard:
    """One answer: what the device knows of it, what the cloud was sent, what was seen of both."""

    given: Given
    messages: Sequence[Message]
    seen: Sequence[Seen]


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
    listeners: list[_Listener] = []

    def emulate(stream: Stream) -> Stream:
        listeners.append(_Listener(emulated(link, link_seed)(stream)))
        return listeners[0]

    serving = SimulatedCloud(cloud)
    async with linked_device(serving, device, emulate) as linked:
        await asyncio.sleep(QUIET_S)
        (listener,) = listeners
        listener.seen.clear()
        given = await Arena(device, linked.connectors).ask(question, settings, marker=marker)
        await linked.connector.settled()
        await asyncio.sleep(QUIET_S)
        found = Overheard(given, _messages(bytes(listener.sent)), tuple(listener.seen))
    await serving.wait_idle()
    return found


def _messages(sent: bytes) -> list[Message]:
    frames = FrameDecoder()
    frames.feed(sent)
    return [decode(body) for body in iter(frames.next_body, None)]


# What the cloud reads.


def listed(heard: Overheard, vocabulary: int) -> dict[int, float]:
    """Every token that crossed, and the probability that it came with, summed over messages."""
    question, settings = heard.given.answer.question, heard.given.answer.settings
    if not isinstance(settings, DragonSettings):
        raise ValueError("only mode dragon discloses by levels")
    code = codec(settings.codec_for(question.sampler), vocabulary)
    found: dict[int, float] = {}
    for message in heard.messages:
        match message:
            case Draft():
                p = decode_distribution(code, message.payload, Step(message.step))
                pairs = zip(p.ids.tolist(), p.probabilities.tolist(), strict=True)
            case Target(token=token):
                pairs = zip((token,), (1.0,), strict=True)
            case _:
                continue
        for token, probability in pairs:
            found[token] = found.get(token, 0.0) + probability
    return found


def drafted(heard: Overheard) -> list[int]:
    """The tokens of all drafts and decisions that crossed, in their order."""
    return [each.token for each in heard.messages if isinstance(each, Draft | Target)]


def resumed(heard: Overheard) -> int:
    """How often the answer was opened: once, but for losses."""
    return sum(isinstance(each, Open) for each in heard.messages)


def words(text: str) -> set[str]:
    """The words of a text: letters and digits, at least three, in small letters."""
    return set(re.findall(r"[^\W_]{3,}", text.lower()))


# What somebody on the wire sees.


def features(seen: Sequence[Seen]) -> NDArray[np.float64]:
    """Times and signed sizes of the first EVENTS, then how much there was in all."""
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
    """Whether a classifier names the question of each observation, having learned from others.

    A random forest, cross-validated over `folds`, every question as often in each.
    """
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
    """So many notes of which no two have the same question or canary.

    Raises ValueError where the forms do not give so many.
    """
    draw = random.Random(f"canaries {seed}")
    found: dict[str, CanaryNote] = {}
    for _ in range(100 * count):
        if len(found) == count:
            return list(found.values())
        question, text = draw.choice(_FORMS)
        thing, another = draw.sample(_THINGS, 2)
        canary = "".join(draw.choices("bcdfghjklmnprstvz", k=3)) + str(draw.randrange(100, 1000))
        fill = partial(
            str.format,
            name=draw.choice(_NAMES),
            thing=thing,
            other=another,
            place=draw.choice(_PLACES),
            day=draw.choice(_DAYS),
            do=draw.choice(_DOINGS),
            hour=draw.randrange(2, 20),
            minute=draw.choice(("00", "15", "30", "45")),
            canary=canary,
        )
        note = CanaryNote(fill(text), fill(question), canary)
        found.setdefault(note.question, note)
    raise ValueError(f"there are no {count} different notes of these forms")


def membership(crossed: dict[int, float], tokens: Iterable[int], known: set[int]) -> float:
    """How much of a document crossed: the probability that its tokens came with.

    `known` tokens, such as those of the question, say nothing.
    """
    return sum(crossed.get(token, 0.0) for token in set(tokens) - known)


def auc(members: Sequence[float], others: Sequence[float]) -> float:
    """The chance that a document of the store scores higher than one that is not in it."""
    ours, theirs = np.asarray(members)[:, None], np.asarray(others)[None, :]
    return float(np.mean((ours > theirs) + 0.5 * (ours == theirs)))


def auc_interval(members: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Its bootstrap 95 % interval over trials, each with a document of either kind."""
    draw, count = np.random.default_rng(0), len(members)
    both = np.asarray(members), np.asarray(others)
    values = []
    for _ in range(1000):
        chosen = draw.integers(count, size=count)
        values.append(auc(both[0][chosen].tolist(), both[1][chosen].tolist()))
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)
