"""The levels of disclosure: what leaves the device beside the question (SPEC 1.10).

level     up                                    down      who decides
drafts    drafts: distributions and relevance   the same  any placement
answer    target tokens                         drafts    the device
redacted  those likely for the cloud, too       drafts    the device (see `redaction`)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from struct import iter_unpack
from typing import Any, Final

from dragonrt.errors import DragonError
from dragonrt.traces.events import Disclosed
from dragonrt.wire import messages as wire
from dragonrt.wire.messages import SessionMessage


class Disclosure(StrEnum):
    """The values of `--disclose`; each discloses less than those before it."""

    DRAFTS = "drafts"
    ANSWER = "answer"
    REDACTED = "redacted"


FLOOR: Final = 0.25
"""The least cosine of a document that is read if the device keeps its drafts, because text outside
of the context cannot leak (SPEC 1.11). Measured with the bundled embedder."""

Crossing = Mapping[str, int]
"""What a message discloses: fields of `Disclosed`, the ledger's entry."""
NOTHING: Final[Crossing] = {}


def _of_open(message: wire.Open, marker: Sequence[int]) -> Crossing:
    sent: dict[str, Any] = dict(message.question)
    texts = sent.get("prompt", ""), sent.get("instructions", "")
    turns = [text for turn in sent.get("history", ()) for text in turn]
    accepted = iter_unpack("<I", sent.get("accepted", b""))
    return {
        "question": sum(len(text.encode()) for text in texts),
        "history": sum(len(text.encode()) for text in turns),
        "tokens": sum(token not in marker for (token,) in accepted),
    }


Discloses = Callable[[Any, Sequence[int]], Crossing]
"""What a message discloses. The marker's tokens, given next, stand for withheld ones."""

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


@dataclass(frozen=True, slots=True)
class Door:
    """The only way out of a device's answer (SPEC 1.10).

    If it `keeps_drafts`, no distribution passes, and no document is named.
    """

    keeps_drafts: bool
    marker: Sequence[int] = ()

    def entry(self, message: SessionMessage) -> Disclosed | None:
        """Return the ledger's entry of a message that may leave, None for one that may not.

        Raises DragonError for a message without a rule.
        """
        name, rule = type(message).__name__.lower(), RULES.get(type(message))
        if rule is None:
            raise DragonError(f"no rule says what a message of type {name} discloses")
        crossing = rule(message, self.marker)
        if self.keeps_drafts and (crossing.get("distributions") or crossing.get("documents")):
            return None
        return Disclosed(name, **crossing)
