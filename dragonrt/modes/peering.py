"""Track a mode's session with its only peer (Peering); the base class of such modes (Peered).

connected --lost--> waiting --a timeout expires--> alone
    ^   `---lost for good, or useless for too long-> |
    `-----------------joined------------------------'
"""

from abc import abstractmethod

from typing_extensions import override

from dragonrt.modes.mode import Leave, Mode, OnLoss
from dragonrt.timeouts import Timeouts
from dragonrt.traces import events
from dragonrt.traces.events import NoticeKind
from dragonrt.wire.messages import SessionMessage
from dragonrt.wire.reasons import End, Reason


class Peering:
    """Tracks a mode's session with its only peer, and decides how long the mode waits for the peer.

    `peer` is the name while connected, `session` the newest number. If `alone`, the mode decides
    without the peer. The mode sets `progress_s`, the time of the newest progress, and `useful`,
    once this session has led to a decision. Two phrases are for notices: `useless` says what the
    peer failed to do in time, and `alone_as` says what the answer comes from without the peer.
    """

    def __init__(
        self, mode: "Peered", on_loss: OnLoss, timeouts: Timeouts, *, useless: str, alone_as: str
    ) -> None:
        self._mode = mode
        self._on_loss = on_loss
        self._timeouts = timeouts
        self._words = useless, alone_as
        self.peer: str | None = None
        self.session = 0
        self.alone = False
        self.progress_s = 0.0
        self.useful = False
        self._name = ""
        self._loss = End(Reason.LOST, "")
        self._waits = 0, ""
        self._owed_s = 0.0  # since when its message has been due
        self._read_by_s = 0.0
        self._met = False  # whether any session was open
        self._waiting_since_s: float | None = None
        self._missed_since_s: float | None = None  # since when none was of use
        self._began_again = False

    def joined(self, peer: str, session: int, now: float) -> None:
        """Record that session number `session` with `peer` opened at `now`; all waits restart."""
        if self._mode.ready:
            self._mode.emit(events.Rejoined(len(self._mode.decided)))
        self.peer, self.session, self._name = peer, session, peer
        self.alone, self._waiting_since_s = False, None
        self.progress_s = self._owed_s = now
        self._read_by_s = now + self._timeouts.read_s
        self.useful, self._met = False, True

    def lost(self, end: End, returns: bool, now: float) -> None:
        """Record why the session ended; wait for the peer if it `returns`, else continue alone."""
        self.peer, self._loss = None, end
        if returns and self._waiting_since_s is not None:
            return
        if self.useful or self._missed_since_s is None:  # who only comes and goes is as if away
            self._missed_since_s = now
        self._waiting_since_s = self._missed_since_s if returns else None
        if self._mode.ready and self._mode.finish is None:
            self._mode.drop_drafts(now)
            self._miss(now)

    def begin(self, now: float) -> None:
        """Begin the answer once the question is read; without a peer, wait or continue alone."""
        self._mode.ready = True
        self.progress_s = self._owed_s = now
        if self._waiting_since_s is not None:
            self._waiting_since_s = self._missed_since_s = now
        if self.peer is None and self._mode.finish is None:
            self._miss(now)

    def _miss(self, now: float) -> None:
        """Wait for the peer if it may reconnect. Short outages are not reported."""
        may_return = self._waiting_since_s is not None
        if may_return and self._on_loss == "wait":
            text = f"the answer is paused until the cloud is back: {self._loss}"
            if (waits := (len(self._mode.decided), text)) != self._waits:  # a busy peer is retried
                self._waits = waits
                self._mode.emit(events.Noticed(NoticeKind.WAITING, text, self._loss.reason))
        elif not may_return or not self._met or self.alone:  # a peer never met is not waited for
            self.leave_alone(self._loss, now)

    def leave_alone(self, end: End, now: float) -> None:
        self.peer, self._waiting_since_s = None, None
        if self._mode.finish is None and not self.alone:
            self._mode.drop_drafts(now)
            self.alone = True
            step = len(self._mode.decided)
            text = f"{'the rest of ' * bool(step)}this answer is {self._words[1]} alone: {end}"
            self._mode.emit(events.Noticed(NoticeKind.ALONE, text, end.reason))
            self._mode.emit(events.WentAlone(step))
            self._mode.begin_alone(now)

    def begin_again(self, end: End) -> None:
        """Reopen the session; the peer, whose decided text differs, continues from this side's.

        On the second call, end it and continue alone. Peer and user get the reason `end`.
        """
        again, self._began_again = not self._began_again, True
        self._mode.leave(Leave(self._name, end, again=again))
        self.peer, self._waiting_since_s = None, self.progress_s
        if not again:
            self.leave_alone(End(end.reason, f"{end} twice"), self.progress_s)

    def dismiss(self, told: End, end: End, now: float) -> None:
        """End the session for good; continue alone. The peer gets reason `told`, the user `end`."""
        self._mode.leave(Leave(self._name, told))
        if self.alone:
            self._mode.emit(events.Noticed(NoticeKind.PARTED, end.text, end.reason))
        else:
            self.leave_alone(end, now)

    def send(self, message: SessionMessage) -> None:
        """Send a message to the peer if it is connected."""
        if self.peer is not None:
            self._mode.send_to(self.peer, message)

    def asked(self, now: float) -> None:
        """Record that the peer was sent a request at `now`, so that its reply is due from then."""
        self._owed_s = now

    def works(self, now: float) -> None:
        """Restart timeouts, as the peer says it still prefills, for `Timeouts.read_s` at most."""
        if now < self._read_by_s:
            self.progress_s = self._owed_s = now

    def due(self) -> float | None:
        """Return the time in seconds at which the peer is given up; None if no wait is limited."""
        return min(self._limits(), default=(None, 0.0))[0]

    def _limits(self) -> list[tuple[float, float]]:
        """The time at which waiting for the peer ends, and after how many seconds."""
        mode, timeouts = self._mode, self._timeouts
        if not mode.ready or mode.finish is not None:
            return []
        if self._waiting_since_s is not None:
            waits_s = timeouts.answer_s if self._on_loss == "wait" else timeouts.rejoin_s
            return [(self._waiting_since_s + waits_s, waits_s)]
        limits = []
        if self.peer is not None and mode.idle:
            limits.append((self.progress_s + timeouts.answer_s, timeouts.answer_s))
        if self.peer is not None and mode.owed and not self.useful and self._on_loss == "alone":
            limits.append((self._owed_s + timeouts.mute_s, timeouts.mute_s))
        return limits

    def timed_out(self, now: float) -> None:
        """Give the peer up and continue alone, if the time that `due` returns has come."""
        limit_s, seconds = min(self._limits(), default=(now + 1.0, 0.0))
        if now < limit_s:
            return
        if self._waiting_since_s is not None:
            text = f"the cloud did not come back in {seconds:g} s: {self._loss}"
            self.leave_alone(End(self._loss.reason, text), now)
        else:
            end = End(Reason.MUTE, f"{self._words[0]} {seconds:g} s")
            if self.peer is not None:
                self._mode.leave(Leave(self.peer, end))
            self.leave_alone(end, now)


class Peered(Mode):
    """A Mode with exactly one peer; `_peering` tracks the session, and how long to wait."""

    _peering: Peering

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether nothing can be computed until the peer sends a message."""

    @property
    @abstractmethod
    def owed(self) -> bool:
        """Whether only a message of the peer is missing to decide the next token."""

    def drop_drafts(self, now: float) -> None:
        """Drop drafts that await the peer, as its session is lost. By default do nothing."""

    def begin_alone(self, now: float) -> None:
        """Begin to decide without the peer; called when it is given up. By default do nothing."""

    @override
    def deadline(self) -> float | None:
        return self._peering.due()

    @override
    def _timed_out(self, now: float) -> None:
        self._peering.timed_out(now)
