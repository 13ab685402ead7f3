"""The levels of disclosure: what leaves the device with the question (SPEC 1.10).

level     the device sends                       the cloud sends  who decides a token
drafts    drafts: distributions, side relevance  the same         either side
answer    the answer's tokens                    drafts           the device
redacted  tokens that are likely for the cloud   drafts           the device

At level `redacted` the cloud reads r(x): the decided text with one marker for each maximal run of
withheld tokens. Positions and prefix hashes in messages are those of r(x), so the length of a run
is not sent. r(x) does not change within a run, so the cloud's drafts after the marker stay valid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from struct import iter_unpack
from typing import Any, Final

from dragonrt.errors import DragonError
from dragonrt.traces.events import Disclosed
from dragonrt.wire import messages as wire
from dragonrt.wire.fields import Values
from dragonrt.wire.messages import SessionMessage


class Disclosure(StrEnum):
    """What the cloud receives (`--disclose`), from most to least: drafts, answer, redacted text."""

    DRAFTS = "drafts"
    ANSWER = "answer"
    REDACTED = "redacted"


FLOOR: Final = 0.25
"""The least cosine of a document that is read if the device keeps its drafts, because text outside
of the context cannot leak (SPEC 1.11). Measured with the bundled embedder."""

Crossing = Mapping[str, int]
"""Counts of what a message discloses: fields of `Disclosed`, the ledger's entry."""
NOTHING: Final[Crossing] = {}


def _accepted(message: wire.Open) -> list[int]:
    sent: dict[str, Any] = dict(message.question)
    return [token for (token,) in iter_unpack("<I", sent.get("accepted", b""))]


def _of_open(message: wire.Open, marker: Sequence[int]) -> Crossing:
    sent: dict[str, Any] = dict(message.question)
    texts = sent.get("prompt", ""), sent.get("instructions", "")
    turns = [text for turn in sent.get("history", ()) for text in turn]
    return {
        "question": sum(len(text.encode()) for text in texts),
        "history": sum(len(text.encode()) for text in turns),
        "tokens": sum(token not in marker for token in _accepted(message)),
    }


Discloses = Callable[[Any, Sequence[int]], Crossing]
"""Returns what a message discloses. The marker's tokens, given next, stand for withheld ones."""

RULES: Final[dict[type[SessionMessage], Discloses]] = {
    wire.Open: _of_open,
    wire.Working: lambda message, marker: NOTHING,
    wire.Opened: lambda message, marker: NOTHING,
    wire.Conclude: lambda message, marker: NOTHING,
    wire.Close: lambda message, marker: {
        "documents": len(message.attribution.sources) if message.attribution else 0
    },
}
"""The rule of each type of message; modes add those of their own (`modes.messages`)."""


@dataclass(slots=True)
class Door:
    """A check of every message of a device's answer before it leaves (SPEC 1.10).

    If `keeps_drafts` (level `answer` or `redacted`), a message with a distribution or the name of a
    document does not pass. A token passes only at its position in the `transcript`: the decided
    tokens, with `marker` for withheld runs. An Open, which sends the question, passes if its
    history is that of the question `asked`; if `keeps_drafts`, also its prompt and instructions.
    """

    keeps_drafts: bool
    marker: Sequence[int] = ()
    asked: Values = ()
    transcript: list[int] = field(default_factory=list)
    _in_run: bool = False

    def decide(self, token: int, *, withheld: bool) -> None:
        """Note the next decided token as sent or, if `withheld`, as hidden from the cloud."""
        if not withheld:
            self.transcript.append(token)
        elif not self._in_run:
            self.transcript += self.marker
        self._in_run = withheld

    def entry(self, message: SessionMessage) -> Disclosed | None:
        """Return what the message discloses, as a ledger entry, or None if it may not leave now.

        Raises DragonError for a type of message without a rule of what it discloses.
        """
        name, rule = type(message).__name__.lower(), RULES.get(type(message))
        if rule is None:
            raise DragonError(f"no rule says what a message of type {name} discloses")
        found = Disclosed(name, **rule(message, self.marker))
        step, tokens = getattr(message, "step", 0), message.listed()
        if isinstance(message, wire.Open):
            sent, texts = dict(message.question), _TEXTS if self.keeps_drafts else _TEXTS[:1]
            if any(sent.get(name) != value for name, value in self.asked if name in texts):
                return None
            tokens = _accepted(message)
        if not self.keeps_drafts:
            return found
        if found.distributions or found.documents:
            return None
        told = self.transcript[step : step + len(tokens)]
        named = sum(token not in self.marker for token in tokens)
        return found if named == found.tokens and told == [*tokens] else None


_TEXTS: Final = ("history", "prompt", "instructions")  # the texts of a question


MARKER = " …"
"""The marker of a run of withheld tokens."""


def redacted(decisions: Iterable[tuple[int, bool]], marker: Sequence[int]) -> list[int]:
    """Return what the cloud reads of (token, withheld) pairs: a `marker` for each withheld run."""
    door = Door(keeps_drafts=True, marker=marker)
    for token, withheld in decisions:
        door.decide(token, withheld=withheld)
    return door.transcript


def longest_redacted(max_tokens: int, marker: Sequence[int]) -> int:
    """Return the most tokens that `redacted` can return for an answer of `max_tokens` tokens."""
    return max(max_tokens, (max_tokens + 1) // 2 * (1 + len(marker)))
