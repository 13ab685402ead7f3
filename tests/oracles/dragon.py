"""The text that every run of mode dragon must give, and what a cloud reads of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf, log2

from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.side import Side
from tests.oracles.asked import Asked, Attendance, Decide, Models
from tests.oracles.brute_force import (
    DRAFT,
    Coded,
    aggregated,
    coded,
    drawn,
    mixed,
    raced,
    sampled,
    softmax,
    uniform,
)

Decisions = Sequence[tuple[int, bool]]
"""Tokens, each with whether it is withheld from the cloud."""

LED_BITS, WATCHED_BITS, MOST_BITS = 8.0, 16.0, 20.0
"""SPEC 1.11: a cloud that led so far away is watched; what it may then read of the device's
documents; what one token counts at most."""
DISAGREES = -20.0
"""A device whose documents keep less of their weight (SPEC 5): the token before does not count."""


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """A token with its probability in the mixture, and what the sides say there.

    `draft` is the device's. Of the cloud there is nothing where the device is alone.
    """

    token: int
    p: float
    draft: int
    device: Coded
    cloud: Coded | None = None

    @property
    def revealed(self) -> float:
        """The bits that a cloud with its own distribution learns from the token (SPEC 1.11)."""
        return inf if self.cloud is None else _bits(self.device, self.token, self.cloud, self.token)

    @property
    def led(self) -> float:
        """The bits by which it leads away from the device's own draft."""
        return _bits(self.device, self.draft, self.device, self.token)


def _bits(a: Coded, x: int, b: Coded, y: int) -> float:
    """log2 a(x)/b(y), from 0 to MOST_BITS."""
    if a.p[x] <= b.p[y]:
        return 0.0
    return min(MOST_BITS, log2(a.p[x] / b.p[y])) if b.p[y] > 0 else MOST_BITS


def read_by_cloud(decisions: Decisions, marker: Sequence[int]) -> list[int]:
    """Return r(x): a marker for each maximal run of withheld tokens (SPEC 1.10)."""
    read: list[int] = []
    for withheld, run in groupby(decisions, key=lambda each: each[1]):
        read += marker if withheld else [token for token, _ in run]
    return read


def oracle(asked: Asked, settings: DragonSettings) -> Decide:
    """Return what decides the next token: the mixture of what both sides say (SPEC 1)."""
    if settings.keeps_drafts:
        marker = asked.resources.marker if settings.redacts else ()
        return _keeping(asked, settings, marker, decisions_of(asked, settings))

    def decide(text: TokenPrefix) -> Sequence[int]:
        read = None if asked.course.alone(len(text)) else text
        return [_taken(asked, settings, text, read).token]

    return decide


def decisions_of(asked: Asked, settings: DragonSettings) -> list[tuple[int, bool]]:
    """Return the decisions of an answer's accepted tokens: at `redacted` all are withheld."""
    return [(token, settings.redacts) for token in asked.question.accepted]


def redacted_oracle(
    question: Question,
    settings: DragonSettings,
    models: Models,
    marker: Sequence[int],
    course: Attendance | None = None,
) -> Decisions:
    """Return the answer's decisions at level `answer` or `redacted`."""
    asked = Asked(question, models, course or Attendance())
    decisions, start = decisions_of(asked, settings), start_hash(question.seed)
    decide = _keeping(asked, settings, marker, decisions)
    while not asked.ends(tokens := [token for token, _ in decisions]):
        decide(TokenPrefix(start, tokens))
    return decisions


def _keeping(
    asked: Asked, settings: DragonSettings, marker: Sequence[int], decisions: list[tuple[int, bool]]
) -> Decide:
    """A device that keeps its drafts, r(x) made anew from the whole text.

    At `redacted`, accepted tokens, and all that the device decides alone, are withheld; and so is
    what the mixture gives more than `settings.withhold` times what the cloud gives it after r(x),
    and what would reveal more than `settings.reveal` bits. At `answer` the cloud is told all until
    it has led the answer away and the device's documents carry it on: from there on the device is
    alone, and tells nothing.
    """
    revealed, led, newest, disclosed, over = 0.0, 0.0, 0.0, 0.0, False

    def decide(text: TokenPrefix) -> Sequence[int]:
        nonlocal revealed, led, newest, disclosed, over
        read = TokenPrefix(text.hashes[0], read_by_cloud(decisions, marker))
        alone = over or asked.course.alone(len(text))
        taken = _taken(asked, settings, text, None if alone else read)
        bits = taken.revealed
        if settings.redacts:
            q = 0.0 if taken.cloud is None else float(taken.cloud.p[taken.token])
            withheld = taken.p > settings.withhold * q or revealed + bits > settings.reveal
            revealed += 0.0 if withheld else bits
        else:
            led += newest if asked.kept("device", text) > DISAGREES else 0.0
            watched, newest = led >= LED_BITS, 0.0
            withheld = over = over or (watched and disclosed + bits > WATCHED_BITS)
            if over and not alone:
                taken = _taken(asked, settings, text, None)
            elif not alone:
                disclosed += bits if watched else 0.0
                newest = taken.led
        decisions.append((taken.token, withheld))
        return [taken.token]

    return decide


def _taken(
    asked: Asked, settings: DragonSettings, text: TokenPrefix, read: TokenPrefix | None
) -> _Taken:
    """The next token from what both sides say, the cloud after what it `read` (SPEC 1).

    Where that is None the device is alone.
    """
    step, seed, sampler = len(text), asked.seed, asked.question.sampler
    by_drafts = settings.rule == "algorithm1" and sampler.temperature > 0

    def said(side: Side, text: TokenPrefix) -> tuple[Coded, float]:
        p = asked.law(side, text) if by_drafts else asked.p(side, text)
        return coded(settings.codec, p), asked.weight(side, text)

    def draft(side: Side, q: Coded) -> int:
        if by_drafts:
            return drawn(q.p, uniform(seed, DRAFT, side, step), q.listed)
        return raced(seed, step, sampled(sampler, q.p))

    device, h_device = said("device", text)
    own = draft("device", device)
    if read is None:
        return _Taken(own, 1.0, own, device)
    cloud, h_cloud = said("cloud", read)
    weights = softmax([h_device, h_cloud])
    mixture = mixed((device, cloud), weights)
    if by_drafts:
        drafts = [own, draft("cloud", cloud)]
        token = aggregated(seed, step, device, cloud, weights, drafts)
    else:
        token = raced(seed, step, sampled(sampler, mixture))
    return _Taken(token, float(mixture[token]), own, device, cloud)
