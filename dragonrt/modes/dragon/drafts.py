"""The messages of mode dragon, and both sides' drafts, looked up by step and prefix hash.

A draft of step `t` carries a 64-bit hash of the tokens it was conditioned on (SPEC 1.3). It may be
aggregated if step and hash match; the order of arrival does not matter.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta
from typing_extensions import override

from dragonrt.modes.messages import Target, message
from dragonrt.modes.prefix import TokenPrefix
from dragonrt.privacy.disclosure import NOTHING
from dragonrt.privacy.evidence import SideDraft
from dragonrt.settings import U64
from dragonrt.side import Side
from dragonrt.wire.fields import U32, Finite, Payload, Step, Time, Token
from dragonrt.wire.messages import Opened, SessionMessage, Working
from dragonrt.wire.reasons import MessageError, Reason

LARGEST_COEFFICIENT = 1e9  # of Coefficients: no side is that slow
LARGEST_LOSS = 100.0  # of a side's weight in a value, as a logarithm


@message(
    7,
    early=True,
    discloses=lambda message, marker: {
        "tokens": 1,
        "distributions": 1,
        "step": message.step,
        "token": message.token,
    },
)
class Draft(SessionMessage, frozen=True):
    """One side's draft of `step`: token, distribution, relevance (SPEC 1.3).

    `prefix_hash` is the hash of the text before `step`, `payload` the encoded distribution. The
    sender's weight follows from `relevance`, its side relevance h̃, plus `kept`, the logarithm of
    the share of weight that it keeps inside a value, such as a date: below 0 if some documents
    contradict it (SPEC 5). The sender has decided the first `step - ahead` tokens;
    `decided_hash` is the low half of their hash. Times are in µs or 0: `decode_us` of the
    forward, `time_us` and `echo_us` for the round trip.
    """

    step: Step
    prefix_hash: U64
    token: Token
    relevance: Finite
    decode_us: Time
    ahead: Step
    decided_hash: U32
    payload: Payload
    time_us: Time = 0
    echo_us: Time = 0
    kept: Annotated[float, Meta(ge=-LARGEST_LOSS, le=0.0)] | Literal[0] = 0

    def __post_init__(self) -> None:
        if self.ahead > self.step:
            raise MessageError(Reason.MALFORMED, "ahead must not reach before the first step")

    @override
    def listed(self) -> Sequence[int]:
        return (self.token,)


@message(16, early=True, discloses=lambda message, marker: NOTHING)
class Coefficients(SessionMessage, frozen=True):
    """The sender's seconds per draft: (k_a / k_b) · t + k_c at step t (SPEC 1.4).

    Greedy placement compares both sides' delays, so each sends its own once a session.
    """

    k_a: Annotated[float, Meta(ge=-LARGEST_COEFFICIENT, le=LARGEST_COEFFICIENT)]
    k_b: Annotated[float, Meta(ge=1.0, le=LARGEST_COEFFICIENT)]
    k_c: Annotated[float, Meta(ge=0.0, le=LARGEST_COEFFICIENT)]


ADMITTED: Final[Mapping[Side, tuple[type[SessionMessage], ...]]] = {
    "device": (Working, Opened, Draft),
    "cloud": (Target,),
}
"""All messages that a side accepts if the device keeps its drafts."""

LONGEST_ENTRY = 8  # bytes that no codec needs for a token: so drafts fill the memory with no more
PREFIXES_PER_STEP = 16
"""The newest drafts of a step that are kept. A side queues its own in the order of sending, and so
drops those that the other side drops, and drafts them again if needed."""
BYTES_PER_STEP = 512 * 1024
"""Payloads kept per step, too: of dense codecs over large vocabularies the newest draft alone."""


class DraftQueue:
    """One side's drafts of the undecided steps, looked up by step and prefix hash.

    Of each step it keeps the newest drafts, at most PREFIXES_PER_STEP with BYTES_PER_STEP together,
    but at least one. A peer must not draft step `end`, `window` after the first undecided one.
    """

    def __init__(self, window: int, decided: int = 0) -> None:
        self._window = window
        self._decided = decided
        self.end = decided + window
        self._drafts: dict[int, dict[int, SideDraft]] = {}

    def put(self, draft: SideDraft) -> None:
        """Add a draft unless its step is decided; drop the step's oldest drafts if too many."""
        if draft.step < self._decided:
            return
        kept = self._drafts.setdefault(draft.step, {})
        kept.pop(draft.prefix_hash, None)
        kept[draft.prefix_hash] = draft
        size = 0
        for each in kept.values():
            size += len(each.payload)
        while len(kept) > 1 and (len(kept) > PREFIXES_PER_STEP or size > BYTES_PER_STEP):
            size -= len(kept.pop(next(iter(kept))).payload)

    def get(self, step: int, prefix_hash: int) -> SideDraft | None:
        """Return the draft of `step` after the prefix with this hash, or None."""
        kept = self._drafts.get(step)
        return kept.get(prefix_hash) if kept else None

    def decide(self, step: int) -> None:
        """Drop the drafts of `step`, the first undecided step, which is now decided; move `end`."""
        self._drafts.pop(step, None)
        self._decided = step + 1
        self.end = self._decided + self._window

    def keep(self, hashes: Collection[int]) -> None:
        """Drop the drafts whose prefix hash is not among `hashes`, those of the text's prefixes."""
        for kept in self._drafts.values():
            for prefix_hash in kept.keys() - set(hashes):
                del kept[prefix_hash]

    def clear(self) -> None:
        """Drop the drafts of all steps. The first undecided step and `end` do not change."""
        self._drafts.clear()


class Transcript:
    """The answer's text as the peer receives it. In this base class the peer gets every token.

    `prefix` has the `length` decided tokens that the peer received, then this side's drafts.
    """

    def __init__(self, prefix: TokenPrefix, length: int) -> None:
        self.prefix = prefix
        self.length = length

    def place(self, step: int) -> tuple[int, int]:
        """Return where `step` of this side's text is in the peer's text, as (step, prefix hash).

        The steps differ if tokens were withheld from the peer. Undecided tokens count as sent.
        """
        return step, self.prefix.hashes[step]

    def append(self, token: int, withheld: bool) -> range:
        """Add a decided token, or the marker if `withheld`; return the steps new to the peer."""
        self.length += 1
        return range(self.length - 1, self.length)


class Redacted(Transcript):
    """The device's text as the cloud receives it: `marker` replaces each run of withheld tokens.

    `text` is the whole text. Its first `decided` tokens, those of a resumed answer, are withheld.
    `prefix` is empty when given; it gets the text with markers, then this side's drafts.
    """

    def __init__(
        self, text: TokenPrefix, prefix: TokenPrefix, decided: int, marker: Sequence[int]
    ) -> None:
        super().__init__(prefix, 0)
        self._text = text
        self._marker = marker
        self._decided = 0
        self._in_run = False
        for token in text.tokens[:decided]:
            self.append(token, withheld=True)

    @override
    def place(self, step: int) -> tuple[int, int]:
        ahead, prefix = self._text.tokens[self._decided : step], self.prefix
        length = self.length + len(ahead)
        if prefix.tokens[self.length : length] != ahead:
            prefix.replace_from(self.length, ahead)
        return length, prefix.hashes[length]

    @override
    def append(self, token: int, withheld: bool) -> range:
        self._decided += 1
        new: Sequence[int] = (token,)
        if withheld:
            new = () if self._in_run else self._marker
        self._in_run = withheld
        if new:
            self.prefix.replace_from(self.length, new)
        first, self.length = self.length, self.length + len(new)
        return range(first, self.length)


class Drafts:
    """The text of an answer at one side, and the drafts of both sides.

    `prefix` has the `decided` tokens, then this side's drafted sequence. `own` and `theirs` are the
    queues of this side's and the peer's drafts. `transcript` is the text as the peer receives it:
    the tokens of `marker`, if any, replace tokens that are withheld from the peer.
    """

    def __init__(
        self, start: int, decided: Sequence[int], window: int, marker: Sequence[int] | None = None
    ) -> None:
        self.prefix, self.decided = TokenPrefix(start, decided), len(decided)
        self.transcript = Transcript(self.prefix, self.decided)
        if marker is not None:
            self.transcript = Redacted(self.prefix, TokenPrefix(start), self.decided, marker)
        self.own = DraftQueue(window, self.decided)
        self.theirs = DraftQueue(window, self.transcript.length)

    def own_draft(self, step: int) -> SideDraft | None:
        """Return this side's draft that follows the first `step` tokens of the prefix, or None."""
        return self.own.get(step, self.prefix.hashes[step])

    def their_draft(self, step: int) -> SideDraft | None:
        """Return the peer's draft that follows the first `step` tokens of the prefix, or None."""
        return self.theirs.get(*self.transcript.place(step))
