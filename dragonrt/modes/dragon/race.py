"""The race codec in an answer (SPEC 1.8): prove the winner, or request the entries that it lacks.

The codec transmits candidates. If they do not prove the winner of the next step, the missing
probabilities are requested; one round trip later they do. A side requests only tokens that it has
listed itself, so what may be requested of a decided step is known when it is decided. A request
lowers the threshold of the side that receives it, which then lists more; steps without one raise
it. About REQUESTS of all steps lead to a request to either side. The text does not depend on it.
"""

from dataclasses import replace

import numpy as np
from typing_extensions import override

from dragonrt.distributions.race_codec import (
    LARGEST_TAU,
    OwnRace,
    RaceCodec,
    RaceEntries,
    decode_probabilities,
    encode_probabilities,
)
from dragonrt.modes.dragon.decision import (
    Budget,
    Decided,
    Decision,
    Found,
    Listing,
    Mixed,
    decoded,
    weighed,
)
from dragonrt.modes.dragon.drafts import Drafts, SideDraft
from dragonrt.modes.dragon.messages import EntryRequest, EntryResponse
from dragonrt.modes.dragon.plugs import Handlers, Machine, Plug
from dragonrt.modes.dragon.setup import DragonSetup
from dragonrt.modes.mode import ModeError, Work
from dragonrt.sampling.aggregation import Coupled, side_weights
from dragonrt.wire.limits import MAX_WANTED

REQUESTS = 0.0025
"""The share of steps that should lead to a request to this side: with both half a per cent."""
FALL = 0.5
"""The factor of the threshold after a request."""
LEAST_TAU = 1e-4
RACED_AT_ONCE = 32
"""Races that one input may lead to: postprocessing makes the others."""


def lowered(tau: float) -> float:
    """Return the threshold after a request."""
    return max(LEAST_TAU, tau * FALL)


def raised(tau: float) -> float:
    """Return the threshold after a decided step: if REQUESTS of them ask, it stays the same."""
    return min(LARGEST_TAU, tau * float(FALL ** (-REQUESTS / (1 - REQUESTS))))


class Race(Decision, Plug):
    """Implements Decision for the race codec and coupled noise.

    `tau` is the threshold of what is listed now. The other side may still request entries of
    `run_ahead` decided steps.
    """

    def __init__(self, setup: DragonSetup, drafts: Drafts, machine: Machine) -> None:
        super().__init__(setup)
        if not isinstance(setup.codec, RaceCodec) or not isinstance(setup.rule, Coupled):
            raise ValueError("only the race codec is raced with, and only under coupled noise")
        self._race, self._coupled = setup.codec, setup.rule
        self.tau = setup.codec.tau
        self.most = RACED_AT_ONCE
        self._drafts = drafts
        self._machine = machine
        self._kept = setup.settings.run_ahead
        self._asked: EntryRequest | None = None
        self._decided: dict[int, tuple[int, dict[int, float]]] = {}
        self.handlers: Handlers = {EntryRequest: self._answer, EntryResponse: self._take}

    @override
    def on_session(self, now: float) -> None:
        self._asked = None
        self._decided.clear()

    # Deciding.

    @override
    def listing(self) -> Listing:
        rule, tau = self._coupled, self.tau
        return lambda step, p: rule.listing(step, p, tau)

    @override
    def at_once(
        self, own: SideDraft, theirs: SideDraft, budget: Budget, *, next_step: bool = False
    ) -> Mixed | None:
        if next_step and self._awaits(own):
            return None
        return super().at_once(own, theirs, budget, next_step=next_step)

    @override
    def work(self, own: SideDraft, theirs: SideDraft, peer: str) -> Work | None:
        return None if self._awaits(own) else super().work(own, theirs, peer)

    @override
    def settle(self, found: Found) -> Mixed | None:
        """Return the mixture of the next step, or request what is missing of it."""
        if found.missing is not None and not self._awaits(found.own):
            step, prefix_hash = found.own.step, found.own.prefix_hash
            tokens = tuple(sorted(found.missing[:MAX_WANTED]))
            self._asked = EntryRequest(self._machine.session, step, prefix_hash, tokens)
            self._machine.send(self._asked)
        return found.mixed

    @override
    def _postprocess(self, own: SideDraft, theirs: SideDraft) -> Found:
        return self._raced(own, decoded(self._race, theirs))

    @override
    def _mixed(self, own: SideDraft, theirs: SideDraft, *, next_step: bool = False) -> Mixed | None:
        found = self._raced(own, theirs)
        return self.settle(found) if next_step else found.mixed

    def _raced(self, own: SideDraft, theirs: SideDraft) -> Found:
        """Race two decoded drafts. Pure: for postprocessing, too."""
        mine, other = own.distribution, theirs.distribution
        if not (isinstance(mine, OwnRace) and isinstance(other, RaceEntries)):
            raise ValueError("the drafts are not decoded yet")
        device, cloud = (own, theirs) if self._on_device else (theirs, own)
        weights = side_weights(device.relevance + device.kept, cloud.relevance + cloud.kept)
        ours = weights if self._on_device else (weights[1], weights[0])
        proof = self._coupled.certified(own.step, mine, other, ours)
        if proof.winner is None:
            return Found(own, theirs, missing=proof.missing.tolist())
        return Found(own, theirs, weighed(proof.winner, device, cloud, weights))

    def _awaits(self, own: SideDraft) -> bool:
        asked = self._asked
        return asked is not None and (asked.step, asked.prefix_hash) == (own.step, own.prefix_hash)

    # Entries.

    def _take(self, message: EntryResponse, now: float) -> None:
        """Add the requested entries to the draft that lacks them. Raises ModeError, CodecError."""
        asked, theirs = self._asked, self._drafts.theirs
        if asked is None or (asked.step, asked.prefix_hash) != (message.step, message.prefix_hash):
            raise ModeError(f"entries of step {message.step} came which were not requested")
        self._asked = None
        draft = theirs.get(message.step, message.prefix_hash)
        if draft is not None and isinstance(draft.distribution, RaceEntries):
            wanted = np.array(asked.tokens, np.int64)
            entries = decode_probabilities(draft.distribution, wanted, message.payload)
            theirs.put(replace(draft, distribution=entries))
        self._machine.advance("other", now)

    def _answer(self, message: EntryRequest, now: float) -> None:
        """Send entries of an own draft. Raises ModeError where that was not sent."""
        step, prefix_hash = message.step, message.prefix_hash
        known_hash, known = self._decided.get(step, (0, {}))
        if prefix_hash == known_hash and known.keys() >= set(message.tokens):
            payload = np.array([known[token] for token in message.tokens], "<f8").tobytes()
        else:
            draft = self._drafts.own.get(step, prefix_hash)
            if draft is None or not isinstance(draft.distribution, OwnRace):
                raise ModeError(f"entries of step {step} are requested, which has no such draft")
            wanted = np.array(message.tokens, np.int64)
            payload = encode_probabilities(draft.distribution, wanted)
        if self._race.adapts:
            self.tau = lowered(self.tau)
        self._machine.send(EntryResponse(message.session, step, prefix_hash, payload))

    @override
    def on_decision(self, decided: Decided) -> None:
        # Keep what the other side may still request of the own draft.
        own, theirs = decided.own, decided.theirs
        if own is None:
            return
        if self._race.adapts:
            self.tau = raised(self.tau)
        if theirs is None or not isinstance(own.distribution, OwnRace):
            return
        if isinstance(theirs.distribution, RaceEntries):
            unlisted = np.setdiff1d(theirs.distribution.first, own.distribution.listed)
            known = {each: own.distribution.probability(each) for each in unlisted.tolist()}
            self._decided[own.step] = own.prefix_hash, known
            while len(self._decided) > self._kept:
                del self._decided[next(iter(self._decided))]
