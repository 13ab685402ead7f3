"""The draft queue of one side, looked up by step and prefix hash (SPEC 1.3)."""

from dragonrt.runtime.draft import Draft

LINES_PER_STEP = 4
"""Drafts kept per step. The newest are kept: once a side has drafted along the decided prefix it
never leaves it, so a valid draft cannot be pushed out by later ones of dead lines."""


class DraftQueue:
    """Bounded: at most `LINES_PER_STEP` drafts for each undecided step inside the window.

    The window begins at `decided`, the first undecided step, and moves on with every decision.
    """

    def __init__(self, window: int, decided: int = 0) -> None:
        self._window = window
        self._decided = decided
        self._drafts: dict[int, dict[int, Draft]] = {}

    def put(self, draft: Draft) -> bool:
        """Keep a draft; False if its step lies beyond the window, which an honest side never does.

        A draft of a step that is already decided is dropped silently: it came too late.
        """
        if draft.step < self._decided:
            return True
        if draft.step >= self._decided + self._window:
            return False
        lines = self._drafts.setdefault(draft.step, {})
        lines.pop(draft.prefix_hash, None)
        lines[draft.prefix_hash] = draft
        if len(lines) > LINES_PER_STEP:
            del lines[next(iter(lines))]
        return True

    def get(self, step: int, prefix_hash: int) -> Draft | None:
        """The draft of `step` that is valid for the prefix with this hash, if it is here."""
        lines = self._drafts.get(step)
        return lines.get(prefix_hash) if lines else None

    def decide(self, step: int) -> None:
        """Drop everything up to and including `step`."""
        self._drafts.pop(step, None)
        self._decided = step + 1

    def clear(self) -> None:
        """Drop everything; the window stays where it is."""
        self._drafts.clear()

    def __len__(self) -> int:
        return sum(len(lines) for lines in self._drafts.values())
