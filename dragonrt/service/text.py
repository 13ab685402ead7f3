"""The text of growing lists of tokens."""

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
"""A decoder's replacement for half of a character."""
CONTEXT = 8
"""Tokens decoded again before each new one, so that spaces match the whole text."""


class TextStream:
    """Turns a growing list of tokens into pieces of text, up to the first stop string.

    `stopped` is True once a stop string is complete; no part of it is ever returned.
    """

    def __init__(self, decode: Callable[[list[int]], str], stops: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stops = tuple(stop for stop in stops if stop)
        self._tokens: list[int] = []
        self._settled = 0
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """Return the text that `token` completes."""
        self._tokens.append(token)
        text = self._unsettled()
        if text is None or text.endswith(REPLACEMENT):
            return ""
        self._settled = len(self._tokens)
        return self._release(self._held + text)

    def finish(self) -> str:
        """Return the text held back, after the last token."""
        if self.stopped:
            return ""
        shown = self._release(self._held + (self._unsettled() or ""))
        held, self._held = self._held, ""
        self._settled = len(self._tokens)
        return shown + held

    def _unsettled(self) -> str | None:
        """Return the text since the last settled token; None if it changes returned text."""
        start = max(0, self._settled - CONTEXT)
        known = self._decode(self._tokens[start : self._settled])
        text = self._decode(self._tokens[start:])
        return text[len(known) :] if text.startswith(known) else None

    def _release(self, text: str) -> str:
        """Cut at the first complete stop string; hold back an end that may become one."""
        found = [
            (text.index(stop) + len(stop), text.index(stop)) for stop in self._stops if stop in text
        ]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)[1]]
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        ends = (text[-length:] for length in range(min(longest, len(text)), 0, -1))
        begun = (end for end in ends if any(stop.startswith(end) for stop in self._stops))
        self._held = next(begun, "")
        return text.removesuffix(self._held)
