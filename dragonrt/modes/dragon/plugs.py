"""Plugs: features of the machine, and what they may use of it."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from dragonrt.modes.dragon.decision import Decided
from dragonrt.modes.dragon.drafts import SideDraft
from dragonrt.modes.dragon.messages import Draft
from dragonrt.modes.messages import Target
from dragonrt.modes.question import Question
from dragonrt.privacy.guards import DISCLOSED, Ruling
from dragonrt.traces.events import Cause, Event
from dragonrt.wire.messages import SessionMessage

Handlers = Mapping[type[SessionMessage], Callable[[Any, float], None]]
"""By the type of a message: handles one at a time in seconds."""


class Machine(Protocol):
    """The machine, as its plugs may use it. It `decides` the next step, or the other side does."""

    decides: bool

    @property
    def session(self) -> int:
        """The number of the session with the other side."""

    def send(self, message: SessionMessage) -> None:
        """Send a message to the other side, if it is there."""

    def emit(self, *found: Event) -> None:
        """Publish events of this answer."""

    def advance(self, cause: Cause, now: float) -> None:
        """Decide as many steps as the drafts allow; `cause` is what arrived last."""


class Plug:
    """A feature. The machine calls the methods that it overrides, and no others."""

    handlers: Handlers = MappingProxyType({})
    """Its own messages."""

    def on_prepared(self, context: int) -> None:
        """Begin: this side has read so many tokens, the question and its documents."""

    def on_session(self, now: float) -> None:
        """Begin a session with the other side."""

    def on_measured(self, rtt_s: float, bits_per_s: float | None) -> None:
        """Take what the connection has measured of the link."""

    def on_draft(self, draft: SideDraft) -> None:
        """Take an own draft."""

    def on_disclosed(self, question: Question) -> Question:
        """Return the question as the other side may read it, to go on from what is decided."""
        return question

    def on_send(self, message: Draft, draft: SideDraft, now: float) -> Draft | None:
        """Return the message of a draft as it is to be sent; None withholds it."""
        return message

    def on_receive(self, message: Draft | Target, now: float) -> None:
        """Take what the other side has drafted or decided."""

    def on_ruling(self, decided: Decided) -> Ruling:
        """Return what guards make of a token that this side is about to decide."""
        return DISCLOSED

    def on_decision(self, decided: Decided) -> None:
        """Take the next step's decision, before anything has changed."""

    def on_decided(self, decided: Decided, new: Sequence[int], now: float) -> None:
        """Take what this side has decided; the transcript has `new` steps."""


class Hooks:
    """The methods that plugs override, by their names, and the handlers of their messages."""

    def __init__(self, plugs: Sequence[Plug] = ()) -> None:
        def overriding(name: str) -> list[Callable[..., Any]]:
            inherited = getattr(Plug, name)
            found = [plug for plug in plugs if getattr(type(plug), name) is not inherited]
            return [getattr(plug, name) for plug in found]

        self.handlers: Handlers = {
            kind: take for plug in plugs for kind, take in plug.handlers.items()
        }
        self.prepared, self.session = overriding("on_prepared"), overriding("on_session")
        self.measured, self.draft = overriding("on_measured"), overriding("on_draft")
        self.send, self.receive = overriding("on_send"), overriding("on_receive")
        self.disclosed, self.ruling = overriding("on_disclosed"), overriding("on_ruling")
        self.decision, self.decided = overriding("on_decision"), overriding("on_decided")
