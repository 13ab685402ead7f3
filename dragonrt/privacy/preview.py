"""Preview what may leave the device for a question (SPEC 1.10). Pure.

A mode names what its device may send, by messages that disclose all that one of their type can. The
door of the answer says what each discloses, as it will for those that are sent: so a preview says
what the ledger may say, and nothing else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dragonrt.privacy.disclosure import Door
from dragonrt.traces.events import Disclosed
from dragonrt.wire import messages as wire
from dragonrt.wire.messages import SessionMessage

KINDS: Final = ("question", "history", "tokens", "distributions", "documents")
"""The ledger's fields of what an answer discloses."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A preview, as `entries` of the ledger: the first are those of the opening messages.

    A door that `withholds` lets not all of the answer's tokens out.
    """

    withholds: bool
    entries: tuple[Disclosed, ...]

    def bytes_of(self, kind: str) -> int:
        """Return the bytes of "question" or "history" in the opening messages."""
        return sum(int(getattr(entry, kind)) for entry in self.entries)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The KINDS that may leave."""
        return tuple(kind for kind in KINDS if self.bytes_of(kind))

    def foresees(self, entry: Disclosed) -> bool:
        """Return whether an entry of an answer's ledger discloses no more than this preview says.

        A session that is opened again repeats tokens that left before.
        """
        types = {each.message for each in self.entries}
        crossed = [kind for kind in KINDS if getattr(entry, kind)]
        return entry.message in types and set(crossed) <= set(self.kinds)


def preview(door: Door, opening: wire.Open, sends: Iterable[SessionMessage]) -> Preview:
    """Return what may leave by a door: the opening message, then what the mode `sends`."""
    messages = opening, *sends, wire.Conclude(0)
    found = [entry for entry in map(door.foresee, messages) if entry is not None]
    return Preview(bool(door.marker), tuple(found))


def of_parts(parts: Sequence[Preview]) -> Preview:
    """Return what may leave for a question that is asked in these parts, one after another."""
    first = parts[0]
    openings = tuple(part.entries[0] for part in parts)
    return Preview(first.withholds, openings + first.entries[1:])
