"""The entries that a race needs beyond those that were listed: asked for and given (SPEC 1.8).

A side asks when it has both drafts of the next step and cannot prove the winner; one round trip
later it can. It asks only for tokens that it has listed itself, so what may be asked of a decided
step is known when it is decided, and little has to be kept. A request lowers the threshold of the
side that it comes to, which then lists more; steps without one raise it. So about REQUESTS of all
steps lead to one to either side, whatever the models say; the text does not depend on it.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Codec
from dragonrt.distributions.race_codec import (
    LARGEST_TAU,
    OwnRace,
    RaceCodec,
    RaceEntries,
    decode_probabilities,
    encode_probabilities,
)
from dragonrt.modes.deciding import Missing
from dragonrt.modes.drafts import DraftQueue, SideDraft
from dragonrt.modes.mode import ModeError
from dragonrt.wire import messages as wire
from dragonrt.wire.limits import MAX_WANTED

REQUESTS = 0.0025
"""The share of steps that should lead to a request to this side: with both half a per cent."""
FALL = 0.5
"""What a request multiplies the threshold by."""
LEAST_TAU = 1e-4


def lowered(tau: float) -> float:
    """The threshold after a request."""
    return max(LEAST_TAU, tau * FALL)


def raised(tau: float) -> float:
    """The threshold after a decided step: where REQUESTS of them ask, it stays where it is."""
    return min(LARGEST_TAU, tau * float(FALL ** (-REQUESTS / (1 - REQUESTS))))


class MissingEntries:
    """Both sides of it in one answer. `kept` steps may lie behind the decided text and be asked of.

    `tau` is the threshold of what is listed now.
    """

    def __init__(self, code: Codec, kept: int) -> None:
        self._adapts = isinstance(code, RaceCodec) and code.adapts
        self.tau = code.tau if isinstance(code, RaceCodec) else 0.0
        self._kept = kept
        self._asked: wire.EntryRequest | None = None
        self._decided: dict[int, tuple[int, dict[int, float]]] = {}

    def clear(self) -> None:
        """A session begins: nothing is asked for yet."""
        self._asked = None
        self._decided.clear()

    # ClientSession.

    def awaits(self, step: int, prefix_hash: int) -> bool:
        """Whether what is missing of that step has been asked for."""
        asked = self._asked
        return asked is not None and (asked.step, asked.prefix_hash) == (step, prefix_hash)

    def ask(self, session: int, missing: Missing) -> wire.EntryRequest:
        """The message that asks for it; until it is answered that step is awaited."""
        tokens = tuple(sorted(missing.tokens[:MAX_WANTED]))
        self._asked = wire.EntryRequest(session, missing.step, missing.prefix_hash, tokens)
        return self._asked

    def take(self, message: wire.EntryResponse, theirs: DraftQueue) -> None:
        """Add what was asked for to the draft that lacked it. Raises ModeError, CodecError."""
        asked = self._asked
        if asked is None or not self.awaits(message.step, message.prefix_hash):
            raise ModeError(f"entries of step {message.step} came which were not asked for")
        self._asked = None
        draft = theirs.get(message.step, message.prefix_hash)
        if draft is not None and isinstance(draft.distribution, RaceEntries):
            wanted = np.array(asked.tokens, np.int64)
            entries = decode_probabilities(draft.distribution, wanted, message.payload)
            theirs.put(replace(draft, distribution=entries))

    # Answering.

    def decided(self, own: SideDraft, theirs: SideDraft | None) -> None:
        """A step is decided: remember what the other side may still ask of the own draft."""
        if self._adapts:
            self.tau = raised(self.tau)
        if theirs is None or not isinstance(own.distribution, OwnRace):
            return
        if isinstance(theirs.distribution, RaceEntries):
            unlisted = np.setdiff1d(theirs.distribution.first, own.distribution.listed)
            known = {token: own.distribution.probability(token) for token in unlisted.tolist()}
            self._decided[own.step] = own.prefix_hash, known
            while len(self._decided) > self._kept:
                del self._decided[next(iter(self._decided))]

    def answer(self, message: wire.EntryRequest, own: DraftQueue) -> wire.EntryResponse:
        """What is asked of an own draft. Raises ModeError where that was not sent."""
        step, prefix_hash = message.step, message.prefix_hash
        payload = self._of_decided(message)
        if payload is None:
            draft = own.get(step, prefix_hash)
            if draft is None or not isinstance(draft.distribution, OwnRace):
                raise ModeError(f"entries of step {step} are asked for, which has no such draft")
            payload = encode_probabilities(draft.distribution, _ids(message))
        if self._adapts:
            self.tau = lowered(self.tau)
        return wire.EntryResponse(message.session, step, prefix_hash, payload)

    def _of_decided(self, message: wire.EntryRequest) -> bytes | None:
        prefix_hash, known = self._decided.get(message.step, (0, {}))
        if prefix_hash != message.prefix_hash or not known.keys() >= set(message.tokens):
            return None
        return np.array([known[token] for token in message.tokens], "<f8").tobytes()


def _ids(message: wire.EntryRequest) -> NDArray[np.int64]:
    return np.array(message.tokens, np.int64)
