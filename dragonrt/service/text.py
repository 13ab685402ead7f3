"""An answer's text while it grows: decoded from tokens, and joined from the answers to parts."""

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
"""A decoder's replacement for half of a character."""
CONTEXT = 8
"""Tokens decoded again before each new one, so that spaces match the whole text."""


class TextStream:
    """An incremental decoder: push tokens, get new text, up to the first of the stop strings.

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
        self._tokens.append(token)
        text = self._unsettled()
        if text is None or text.endswith(REPLACEMENT):
            return ""
        self._settled = len(self._tokens)
        return self._release(self._held + text)

    def finish(self) -> str:
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


class JoinedText:
    """The answers to `parts` of a question, joined while they are generated into one text.

    A model's refusal of a part is held back until another part has an answer, and then follows its
    question: "who bred them: I don't know." If all parts are refused, only one refusal is shown.
    `text` is the joined text so far; `places` has the index in it where each part's answer begins.
    """

    def __init__(self, parts: Sequence[str], refusal: str) -> None:
        self.text = ""
        self.places = [0] * len(parts)
        self._parts, self._refusal = parts, refusal.strip().casefold()
        self._number, self._said, self._shown = 0, "", 0
        self._refused: dict[int, str] = {}

    def push(self, text: str) -> tuple[str, str]:
        """Add text of the current part; return what to show: a separator or "", and new text."""
        self._said += text
        several = len(self._parts) > 1
        if several and not self._shown and self._may_refuse():
            return "", ""
        before = len(self.text)
        if not self._shown:
            self._release()
            self._begin(self._number)
        lead = self.text[before:]
        # White space at its end waits for the next word: a separator may come.
        words = (self._said.rstrip() if several else self._said)[self._shown :]
        self._shown += len(words)
        self.text += words
        return lead, words

    def next(self) -> None:
        if not self._shown and self._said.strip():
            self._refused[self._number] = self._said.strip()
        self._number, self._said, self._shown = self._number + 1, "", 0

    def end(self) -> str:
        """Return the refusals that are still held back, to show after the last part."""
        before = len(self.text)
        if not self.text and self._refused:
            self.text = self._refused.popitem()[1]
        else:
            self._release()
        return self.text[before:]

    def _may_refuse(self) -> bool:
        said, refusal = self._said.casefold().strip(), self._refusal
        return refusal.startswith(said) or (refusal != "" and said.startswith(refusal))

    def _release(self) -> None:
        for number, said in self._refused.items():
            if self._parts[number]:
                self._begin(number, f"{self._parts[number].rstrip('?')}: ")
                self.text += said
        self._refused = {}

    def _begin(self, number: int, label: str = "") -> None:
        if self.text and self.text[-1] not in ".!?\u2026":
            self.text += "; "
            label = label[:1].lower() + label[1:] if label[1:2].islower() else label
        elif self.text:
            self.text += " "
        self.text += label
        self.places[number] = len(self.text)
