"""Drafts of mode dragon, kept for each side and looked up by step and prefix hash (SPEC 1.3).

A draft of step `t` carries a 64-bit running hash of the tokens it was conditioned on. Nothing
else, no step number and no order of arrival, decides whether it may be aggregated.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dragonrt.distributions import Distribution
from dragonrt.modes.row_shares import RowShares


@dataclass(frozen=True, slots=True)
class SideDraft:
    """One side's next-token guess for one prefix.

    `payload` is the encoded distribution as it travels, `distribution` the same, decoded: a side
    knows its own; the other side's is None while decoding it is left to a head. `relevance` is h̃,
    the log-sum-exp of the side's document relevances; `decode_s` the seconds the forward took;
    `rows` is what each of the own documents gave; `others` are the next best tokens of the own
    race, where they are wanted.
    """

    step: int
    prefix_hash: int
    token: int
    payload: bytes
    relevance: float
    decode_s: float
    distribution: Distribution | None = None
    rows: RowShares | None = None
    others: tuple[tuple[int, float], ...] = ()

    def rank(self, token: int) -> int | None:
        """The place of a token in the own race, as far as that is known: 0 is the draft."""
        best = [self.token, *(other for other, _ in self.others)]
        return best.index(token) if token in best else None


LINES_PER_STEP = 16
"""Drafts kept per step: the newest. A side puts its drafts into its own queue in the order in which
it sends them, so it forgets what the other side does, and drafts that anew where it is needed."""

BYTES_PER_STEP = 512 * 1024
"""Payloads kept per step, too: of dense codecs over large vocabularies the newest draft alone."""


class DraftQueue:
    """Bounded: at most `LINES_PER_STEP` drafts for each undecided step inside the window, and of
    those as many of the newest as have BYTES_PER_STEP together, but one.

    The window begins at `decided`, the first undecided step, and moves on with every decision.
    """

    def __init__(self, window: int, decided: int = 0) -> None:
        self._window = window
        self._decided = decided
        self._drafts: dict[int, dict[int, SideDraft]] = {}

    def reaches(self, step: int) -> bool:
        """Whether a step lies in the window or before it; an honest side drafts no other."""
        return step < self._decided + self._window

    def put(self, draft: SideDraft) -> None:
        """Keep a draft of a step in the window; one that is already decided comes too late."""
        if draft.step < self._decided:
            return
        lines = self._drafts.setdefault(draft.step, {})
        lines.pop(draft.prefix_hash, None)
        lines[draft.prefix_hash] = draft
        while len(lines) > LINES_PER_STEP or (len(lines) > 1 and _bytes(lines) > BYTES_PER_STEP):
            del lines[next(iter(lines))]

    def get(self, step: int, prefix_hash: int) -> SideDraft | None:
        """The draft of `step` that is valid for the prefix with this hash, if it is here."""
        lines = self._drafts.get(step)
        return lines.get(prefix_hash) if lines else None

    def crowded(self, step: int) -> bool:
        """Whether one more draft of that step might push out one that is still needed."""
        lines = self._drafts.get(step, {})
        return len(lines) >= LINES_PER_STEP // 2 or _bytes(lines) > BYTES_PER_STEP // 2

    def decide(self, step: int) -> None:
        """Drop everything up to and including `step`."""
        self._drafts.pop(step, None)
        self._decided = step + 1

    def keep(self, hashes: Collection[int]) -> None:
        """Drop all drafts after prefixes of other hashes."""
        for lines in self._drafts.values():
            for prefix_hash in lines.keys() - set(hashes):
                del lines[prefix_hash]

    def clear(self) -> None:
        """Drop everything; the window stays where it is."""
        self._drafts.clear()

    def __len__(self) -> int:
        return sum(len(lines) for lines in self._drafts.values())


def _bytes(lines: Mapping[int, SideDraft]) -> int:
    return sum(len(draft.payload) for draft in lines.values())
