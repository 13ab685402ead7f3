"""Tokens to text as they come: nothing is shown that a later token could change."""

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
"""What a decoder shows for half of a character."""

CONTEXT = 8
"""Tokens decoded again before each new one, so that spaces come out as in the whole text."""


class TextStream:
    """Turns a growing list of tokens into pieces of text, and finds stop strings in it.

    `push` returns what may be shown now. Once a stop string is complete `stopped` is True, and
    neither it nor anything after it is ever returned.
    """

    def __init__(self, decode: Callable[[list[int]], str], stops: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stops = tuple(stop for stop in stops if stop)
        self._tokens: list[int] = []
        self._settled = 0
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that `token` made certain."""
        self._tokens.append(token)
        text = self._unsettled()
        if text is None or text.endswith(REPLACEMENT):
            return ""
        self._settled = len(self._tokens)
        return self._release(self._held + text)

    def finish(self) -> str:
        """What was held back, once no token can follow."""
        if self.stopped:
            return ""
        shown = self._release(self._held + (self._unsettled() or ""))
        held, self._held = self._held, ""
        self._settled = len(self._tokens)
        return shown + held

    def _unsettled(self) -> str | None:
        """The text of the tokens since the last settled one; None if they change what was shown."""
        start = max(0, self._settled - CONTEXT)
        known = self._decode(self._tokens[start : self._settled])
        text = self._decode(self._tokens[start:])
        return text[len(known) :] if text.startswith(known) else None

    def _release(self, text: str) -> str:
        """Cut at the stop string that is complete first; hold back an end that may become one."""
        found = [
            (text.index(stop) + len(stop), text.index(stop)) for stop in self._stops if stop in text
        ]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)[1]]
        longest = max((len(stop) for stop in self._stops), default=0)
        for length in range(min(longest - 1, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                self._held = text[-length:]
                return text[:-length]
        self._held = ""
        return text
