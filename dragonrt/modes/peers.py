"""What the modes with one other side share: it joins, leaves, comes back, or is given up.

connected --left--> waiting --timeouts runs out--> alone
    ^   `---left for good, or useless for too long-> |
    `-----------------joined------------------------'
"""

from dragonrt.modes.mode import Leave, Mode, OnLoss
from dragonrt.timeouts import Timeouts
from dragonrt.traces import events
from dragonrt.traces.notices import NoticeKind
from dragonrt.wire.reasons import End, Reason


class PeerTracking(Mode):
    """A Mode with one peer, which it may lose.

    `_useless` and `_alone_as` are the mode's words for a peer that does nothing and for what
    answers without it. The peer's message has been due since `_owed_s`; `_useful` says whether this
    session ever had one, `_met` whether any session was open, and `_missed_since_s` since when none
    was of use.
    """

    _useless: str
    _alone_as: str

    def __init__(self, on_loss: OnLoss, timeouts: Timeouts) -> None:
        super().__init__()
        self._on_loss = on_loss
        self._timeouts = timeouts
        self._alone = False
        self._loss = End(Reason.LOST, "")
        self._waits = ""
        self._waiting_since_s: float | None = None
        self._progress_s = self._owed_s = 0.0
        self._useful = False
        self._met = False
        self._missed_since_s: float | None = None

    @property
    def _idle(self) -> bool:
        """Whether nothing can be done before a message of the peer."""
        raise NotImplementedError

    @property
    def _owes(self) -> bool:
        """Whether the next token needs nothing but a message of the peer."""
        raise NotImplementedError

    def _part(self, now: float) -> None:
        """Drop what depends on a peer that is gone."""

    def _go_on_alone(self, now: float) -> None:
        """Decide without the peer from now on."""

    def _join(self, peer: str, session: int, now: float) -> None:
        if self._ready:
            self.emit(events.Rejoined(len(self.decided)))
        self._peer, self._session = peer, session
        self._alone, self._waiting_since_s = False, None
        self._progress_s = self._owed_s = now
        self._useful, self._met = False, True

    def _left(self, peer: str, end: End, returns: bool, now: float) -> None:
        self._peer, self._loss = None, end
        if returns and self._waiting_since_s is not None:
            return
        if self._useful or self._missed_since_s is None:  # who only comes and goes is as if away
            self._missed_since_s = now
        self._waiting_since_s = self._missed_since_s if returns else None
        if self._ready and self._finish is None:
            self._part(now)
            self._miss(now)

    def _prepare(self, now: float) -> None:
        """Begin the answer: this side has read the question."""
        self._ready = True
        self._progress_s = self._owed_s = now
        if self._waiting_since_s is not None:
            self._waiting_since_s = self._missed_since_s = now
        if self._peer is None and self._finish is None:
            self._miss(now)

    def _miss(self, now: float) -> None:
        """Wait for the peer if it may reconnect. Short outages are not reported."""
        may_return = self._waiting_since_s is not None
        if may_return and self._on_loss == "wait":
            text = f"waiting for the cloud at token {len(self.decided)}: {self._loss}"
            if text != self._waits:  # a busy peer is asked again and again
                self._waits = text
                self._notice(NoticeKind.WAITING, text, self._loss.reason)
        elif not may_return or not self._met or self._alone:  # a peer never met is not waited for
            self._leave_alone(self._loss, now)

    def _leave_alone(self, end: End, now: float) -> None:
        self._peer, self._waiting_since_s = None, None
        if self._finish is None and not self._alone:
            self._part(now)
            self._alone = True
            step = len(self.decided)
            text = f"answering {self._alone_as} alone from token {step}: {end}"
            self._notice(NoticeKind.ALONE, text, end.reason)
            self.emit(events.WentAlone(step))
            self._go_on_alone(now)

    def _give_up(self, end: End, now: float) -> None:
        """End the session of a peer that is of no use."""
        if self._peer is not None:
            self._out.leave.append(Leave(self._peer, end))
        self._leave_alone(end, now)

    def _greeted(self, now: float) -> None:
        """Take a sign of life that is of no use yet."""
        self._owed_s = now

    def deadline(self) -> float | None:
        return min(self._limits(), default=(None, 0.0))[0]

    def _limits(self) -> list[tuple[float, float]]:
        """When waiting for the peer ends, and after how many seconds."""
        timeouts = self._timeouts
        if not self._ready or self._finish is not None:
            return []
        if self._waiting_since_s is not None:
            waits_s = timeouts.answer_s if self._on_loss == "wait" else timeouts.rejoin_s
            return [(self._waiting_since_s + waits_s, waits_s)]
        limits = []
        if self._peer is not None and self._idle:
            limits.append((self._progress_s + timeouts.answer_s, timeouts.answer_s))
        if self._peer is not None and self._owes and not self._useful and self._on_loss == "alone":
            limits.append((self._owed_s + timeouts.mute_s, timeouts.mute_s))
        return limits

    def _timed_out(self, now: float) -> None:
        limit_s, seconds = min(self._limits(), default=(now + 1.0, 0.0))
        if now < limit_s:
            return
        if self._waiting_since_s is not None:
            text = f"the cloud did not come back in {seconds:g} s: {self._loss}"
            self._leave_alone(End(self._loss.reason, text), now)
        else:
            self._give_up(End(Reason.MUTE, f"{self._useless} {seconds:g} s"), now)
