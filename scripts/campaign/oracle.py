"""The text that every run must give, computed step by step without any runtime, for every mode.

Of the program it has the hash of a text and the values that are asked for; all that is computed is
`brute_force`'s: no queue, no block under way, no message. A run that differs has a defect (SPEC 0).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf, log2

import numpy as np
from numpy.typing import NDArray

from dragonrt.control.verifier import TokenVerifier
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.lookup import Bandit
from dragonrt.modes.mode import Prediction
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.registry import entry_of
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter.settings import SprinterSettings
from dragonrt.side import Side
from dragonrt.testing.scripted import SimulatedModel
from scripts.campaign.brute_force import (
    DRAFT,
    Coded,
    aggregated,
    best_expert,
    coded,
    corrected,
    drawn,
    looked_up,
    mixed,
    raced,
    sampled,
    softmax,
    strongest,
    uniform,
    verified,
)

Models = Mapping[str, SimulatedModel]
"""What says what: "device", and the other sides by their names, in the order of the members."""

Decide = Callable[[TokenPrefix], Sequence[int]]
"""The tokens that are decided next, at once, after a decided text; some may lie beyond its end."""

Decisions = Sequence[tuple[int, bool]]
"""Tokens, each with whether it is withheld from the cloud."""


@dataclass(frozen=True, slots=True)
class Attendance:
    """Who took part, which is the one thing that a text may depend on beside what is asked.

    `alone` says whether the device decided a step without the cloud, `weights` those of the round
    that decided a step, by worker.
    """

    alone: Callable[[int], bool] = lambda step: False
    weights: Callable[[int], Mapping[str, float]] = lambda step: {"cloud": 1.0}


@dataclass(frozen=True, slots=True)
class Asked:
    """What an oracle is asked; `verifier` is a sprinter's, `texts` are looked up in."""

    question: Question
    models: Models
    course: Attendance
    verifier: TokenVerifier | None = None
    texts: Sequence[Sequence[int]] = ()

    @property
    def seed(self) -> int:
        return self.question.seed

    def p(self, name: str, text: TokenPrefix, step: int | None = None) -> NDArray[np.float32]:
        """What a model says after the first `step` tokens of a text, or after all."""
        step = len(text) if step is None else step
        return self.models[name].said(step, text.hashes[step]).p

    def kept(self, name: str, text: TokenPrefix) -> float:
        """The logarithm of the share of its weight that a side keeps (SPEC 5)."""
        return self.models[name].said(len(text), text.hash).kept

    def weight(self, name: str, text: TokenPrefix) -> float:
        """What the sides' weights are the softmax of."""
        return self.models[name].said(len(text), text.hash).relevance + self.kept(name, text)

    def law(self, name: str, text: TokenPrefix, step: int | None = None) -> NDArray[np.float64]:
        """The same after the sampler."""
        return sampled(self.question.sampler, self.p(name, text, step))

    def ends(self, text: Sequence[int]) -> bool:
        """Whether the answer is complete."""
        stopped = bool(text) and text[-1] in self.question.stop_tokens
        return stopped or len(text) >= self.question.max_tokens

    def draws(self, step: int, q: Coded) -> int:
        """A device's draft from its own noise."""
        return drawn(q.p, uniform(self.seed, DRAFT, "device", step), q.listed)


def oracle(
    question: Question,
    settings: Settings,
    models: Models,
    course: Attendance | None = None,
    verifier: TokenVerifier | None = None,
    texts: Sequence[Sequence[int]] = (),
) -> list[int]:
    """The answer's tokens, the accepted ones and the stop token included.

    Without a `course` the other side is there all the time. `verifier` is the sprinter's, `texts`
    are what the device looks up in.
    """
    asked = Asked(question, models, course or Attendance(), verifier, texts)
    decide = _DECIDERS.get(type(settings), _of_entry)(asked, settings)
    text = TokenPrefix(start_hash(question.seed), question.accepted)
    while not asked.ends(text.tokens):
        for token in decide(text):
            if not asked.ends(text.tokens):
                text.append(token)
    return text.tokens


# Mode dragon.

LED_BITS, CARRIED_BITS, MOST_BITS = 8.0, 16.0, 20.0
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
        """What a cloud that said its distribution learns from the token, in bits (SPEC 1.11)."""
        return inf if self.cloud is None else _bits(self.device, self.token, self.cloud, self.token)

    @property
    def led(self) -> float:
        """How far it leads away from the device's own draft, in bits."""
        return _bits(self.device, self.draft, self.device, self.token)


def _bits(a: Coded, x: int, b: Coded, y: int) -> float:
    """log2 a(x)/b(y), from 0 to MOST_BITS."""
    if a.p[x] <= b.p[y]:
        return 0.0
    return min(MOST_BITS, log2(a.p[x] / b.p[y])) if b.p[y] > 0 else MOST_BITS


def read_by_cloud(decisions: Decisions, marker: Sequence[int]) -> list[int]:
    """r(x): a marker for each maximal run of withheld tokens (SPEC 1.10)."""
    read: list[int] = []
    for withheld, run in groupby(decisions, key=lambda each: each[1]):
        read += marker if withheld else [token for token, _ in run]
    return read


def redacted_oracle(
    question: Question,
    settings: DragonSettings,
    models: Models,
    marker: Sequence[int],
    course: Attendance | None = None,
) -> list[tuple[int, bool]]:
    """The answer's decisions at level `answer` or `redacted`, r(x) made anew from the whole text.

    At `redacted`, accepted tokens, and all that the device decides alone, are withheld; and so is
    what the mixture gives more than `settings.withhold` times what the cloud gives it after r(x),
    and what would reveal more than `settings.reveal` bits. At `answer` the cloud is told all until
    it has led the answer away and the device's documents carry it on: from there on the device is
    alone, and tells nothing.
    """
    asked = Asked(question, models, course or Attendance())
    start = start_hash(question.seed)
    decisions = [(token, settings.redacts) for token in question.accepted]
    revealed, led, newest, carried, over = 0.0, 0.0, 0.0, 0.0, False
    while not asked.ends([token for token, _ in decisions]):
        text = TokenPrefix(start, [token for token, _ in decisions])
        read = TokenPrefix(start, read_by_cloud(decisions, marker))
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
            withheld = over = over or (watched and carried + bits > CARRIED_BITS)
            if over and not alone:
                taken = _taken(asked, settings, text, None)
            elif not alone:
                carried += bits if watched else 0.0
                newest = taken.led
        decisions.append((taken.token, withheld))
    return decisions


def _dragon(asked: Asked, settings: DragonSettings) -> Decide:
    def decide(text: TokenPrefix) -> Sequence[int]:
        read = None if asked.course.alone(len(text)) else text
        return [_taken(asked, settings, text, read).token]

    return decide


def _taken(
    asked: Asked, settings: DragonSettings, text: TokenPrefix, read: TokenPrefix | None
) -> _Taken:
    """The next token from what both sides say, the cloud after what it `read` (SPEC 1).

    Where that is None the device is alone.
    """
    step, seed, sampler = len(text), asked.seed, asked.question.sampler
    name, by_experts = settings.codec_for(sampler), settings.rule == "experts"
    by_drafts = settings.rule == "algorithm1" and sampler.temperature > 0

    def said(side: Side, text: TokenPrefix) -> tuple[Coded, float]:
        if by_experts:
            best, weight = best_expert(*asked.models[side].said(len(text), text.hash).experts())
            return coded(name, best), weight
        p = asked.law(side, text) if by_drafts else asked.p(side, text)
        return coded(name, p), asked.weight(side, text)

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
    mixture = (strongest if by_experts else mixed)((device.p, cloud.p), weights)
    if by_drafts:
        drafts = [own, draft("cloud", cloud)]
        token = aggregated(seed, step, device, cloud, weights, drafts)
    else:
        token = raced(seed, step, sampled(sampler, mixture))
    return _Taken(token, float(mixture[token]), own, device, cloud)


# Modes of blocks.


def _speculative(asked: Asked, settings: SpeculativeSettings) -> Decide:
    """Blocks of fixed length or of a bit budget, one after the other (SPEC 2).

    Where the rule is coupled they come to the text of one model alone, token by token.
    """
    seed, question = asked.seed, asked.question
    family, *arguments = settings.codec.split(":")
    by_id = settings.rule == "sample-quantize"  # drafts from what is not sent
    beta = float(arguments[0]) if family == "csqs" else None

    def moved(beta: float | None, dropped: float) -> float | None:
        return None if beta is None else beta - settings.learning_rate * (dropped - settings.target)

    bandit = Bandit(seed)

    def drafts(text: TokenPrefix) -> tuple[TokenPrefix, list[Coded], int]:
        line, q, bits, at = TokenPrefix(text.hashes[0], text.tokens), list[Coded](), 0, beta
        longest = max(1, min(settings.length, question.max_tokens - len(text) - 1))
        matched, copied = looked_up(asked.texts, text.tokens)
        found = min(longest, len(copied))
        if settings.drafts_from == "model" or (
            settings.drafts_from == "auto"
            and not (found and bandit.takes(len(text), matched, found, longest))
        ):
            matched = 0
        elif not found:
            return line, [], 0
        else:
            longest = found
        while len(q) < longest and not (q and line.tokens[-1] in question.stop_tokens):
            p = asked.law("device", line)
            if matched:
                p = np.eye(p.size)[copied[len(q)]]
            sent = coded(settings.codec, p, by_id=by_id, beta=at)
            bits += sent.bits
            if q and settings.budget is not None and bits > settings.budget:
                break
            q.append(sent)
            line.append(asked.draws(len(line), coded("ids", p) if by_id else sent))
            at = moved(at, sent.dropped)
        return line, q, matched

    def decide(text: TokenPrefix) -> Sequence[int]:
        nonlocal beta, bandit
        first, alone = len(text), asked.course.alone(len(text))
        if settings.rule == "coupled":
            return [raced(seed, first, asked.law("device" if alone else "cloud", text))]
        if alone:
            return [asked.draws(first, coded("ids", asked.law("device", text)))]
        line, q, matched = drafts(text)
        p = [asked.law("cloud", line, step) for step in range(first, len(line) + 1)]
        decided, accepted = verified(seed, first, line.tokens[first:], [each.p for each in q], p)
        bandit = bandit.after(matched, min(accepted + 1, len(q)), accepted)
        # One update more, for the token that the cloud gave (SQS Alg. 1).
        for each in [*q, *q[-1:]][: accepted + 1]:
            beta = moved(beta, each.dropped)
        return decided

    return decide


def _federated(asked: Asked, settings: FederatedSettings) -> Decide:
    """Rounds: a block of the device's, decided by the mixture of the uploads (SPEC 3)."""
    seed, question = asked.seed, asked.question

    def target(line: TokenPrefix, step: int, weights: Mapping[str, float]) -> NDArray[np.float64]:
        names = [name for name in asked.models if name in weights]
        uploads = [coded(settings.codec, asked.p(name, line, step)).p for name in names]
        return sampled(question.sampler, mixed(uploads, [weights[name] for name in names]))

    def decide(text: TokenPrefix) -> Sequence[int]:
        first, line, q = len(text), TokenPrefix(text.hashes[0], text.tokens), list[Coded]()
        weights, length = asked.course.weights(first), question.max_tokens - first - 1
        # What was drafted does not matter where the rule is coupled: a block may be empty.
        length = 0 if settings.rule == "coupled" else min(settings.block_tokens, length)
        while len(q) < length and not (q and line.tokens[-1] in question.stop_tokens):
            q.append(coded("ids", asked.law("device", line)))
            line.append(asked.draws(len(line), q[-1]))
        p = [target(line, step, weights) for step in range(first, len(line) + 1)]
        return verified(seed, first, line.tokens[first:], [each.p for each in q], p)[0]

    return decide


def _sprinter(asked: Asked, settings: SprinterSettings) -> Decide:
    """SPRINTER Algorithm 2: a token stands where the verifier says so, else the target decides."""
    verifier = asked.verifier
    if verifier is None:
        raise ValueError("a sprinter's text depends on its verifier")
    threshold = verifier.threshold if settings.threshold is None else settings.threshold
    run = 0  # tokens since the target's last

    def decide(text: TokenPrefix) -> Sequence[int]:
        nonlocal run
        step, said = len(text), asked.models["device"].said(len(text), text.hash)
        q = coded(settings.codec, asked.law("device", text))
        token, run = asked.draws(step, q), run + 1
        if asked.course.alone(step):
            return [token]
        likely = verifier.probability(said.hidden, said.p, token)
        if likely < threshold or run >= settings.run_length:
            token, run = corrected(asked.seed, step, token, q.p, asked.law("cloud", text)), 0
        return [token]

    return decide


def _of_entry(asked: Asked, settings: Settings) -> Decide:
    """By the oracle that a mode from outside the package brings along."""
    next_token = entry_of(settings).oracle
    if next_token is None:
        raise ValueError("a mode without an oracle cannot be checked: give its entry one")

    def decide(text: TokenPrefix) -> Sequence[int]:
        def said(name: str) -> Prediction:
            return asked.models[name].said(len(text), text.hash)

        alone = asked.course.alone(len(text))
        return [next_token(asked.question, settings, text, said, alone)]

    return decide


_DECIDERS: Mapping[type[Settings], Callable[..., Decide]] = {
    DragonSettings: _dragon,
    SpeculativeSettings: _speculative,
    FederatedSettings: _federated,
    SprinterSettings: _sprinter,
}
