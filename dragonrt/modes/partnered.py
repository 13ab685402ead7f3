"""What the modes with one other side share: it joins, leaves, comes back, or is given up.

connected --left--> waiting --patience runs out--> alone
    ^   `---left, or useless for too long--------->  |
    `-----------------joined------------------------'
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from dragonrt.modes.mode import Effects, Finish, Leave, OnLoss
from dragonrt.patience import Patience
from dragonrt.traces import events
from dragonrt.wire.reasons import Reason


class Partnered(ABC):
    """The part of a Mode that knows where its partner is, and collects Effects in `_out`.

    `on_loss` says what happens between losing it and having it back; `_useless` and `_alone_as` are
    the mode's words for a partner that does nothing and for what answers without it.
    """

    _useless: str
    _alone_as: str

    def __init__(self, on_loss: OnLoss, patience: Patience) -> None:
        self._on_loss = on_loss
        self._patience = patience
        self._peer: str | None = None
        self._session = 0
        self._alone = False
        self._loss = ""
        self._waiting_since_s: float | None = None
        self._progress_s = 0.0
        self._ready = False
        self._finish: Finish | None = None
        self._out = Effects()

    @property
    @abstractmethod
    def decided(self) -> Sequence[int]:
        """The tokens decided so far."""

    @property
    @abstractmethod
    def _idle(self) -> bool:
        """Whether nothing can be done before the partner says something."""

    @abstractmethod
    def _part(self, now: float) -> None:
        """The partner is gone: drop what depends on it."""

    @abstractmethod
    def _go_on_alone(self, now: float) -> None:
        """Decide without the partner from now on."""

    def _join(self, peer: str, session: int, now: float) -> None:
        if self._ready:
            self._out.events.append(events.Rejoined(len(self.decided)))
        self._peer, self._session = peer, session
        self._alone, self._waiting_since_s = False, None
        self._progress_s = now

    def left(self, peer: str, reason: str, returns: bool, now: float) -> Effects:
        self._peer, self._loss = None, reason
        self._waiting_since_s = now if returns else None
        if self._ready and self._finish is None:
            self._part(now)
            self._miss(now)
        return self._effects()

    def _miss(self, now: float) -> None:
        """Go on without the partner, or wait for it if it may come back and that is wanted."""
        if self._on_loss == "wait" and self._waiting_since_s is not None:
            self._waiting_since_s = now
            self._notice(f"waiting for the cloud at token {len(self.decided)}: {self._loss}")
        else:
            self._leave_alone(self._loss, now)

    def _leave_alone(self, reason: str, now: float) -> None:
        self._peer, self._waiting_since_s = None, None
        if self._finish is None and not self._alone:
            self._part(now)
            self._alone = True
            step = len(self.decided)
            self._notice(f"answering {self._alone_as} alone from token {step}: {reason}")
            self._out.events.append(events.WentAlone(step))
            self._go_on_alone(now)

    def _give_up(self, reason: str, now: float) -> None:
        """The partner's session is of no use: it ends."""
        if self._peer is not None:
            self._out.leave.append(Leave(self._peer, Reason.ERROR, reason))
        self._leave_alone(reason, now)

    def deadline(self) -> float | None:
        if not self._ready or self._finish is not None:
            return None
        if self._waiting_since_s is not None:
            return self._waiting_since_s + self._patience.answer_s
        waits = self._peer is not None and self._idle
        return self._progress_s + self._patience.answer_s if waits else None

    def tick(self, now: float) -> Effects:
        limit = self.deadline()
        if limit is not None and now >= limit:
            seconds = f"{self._patience.answer_s:g} s"
            if self._waiting_since_s is not None:
                self._leave_alone(f"the cloud did not come back in {seconds}", now)
            else:
                self._give_up(f"{self._useless} {seconds}", now)
        return self._effects()

    def stop(self, reason: Finish, now: float) -> Effects:
        self._end(reason)
        return self._effects()

    def _end(self, finish: Finish) -> None:
        if self._finish is None:
            self._finish = self._out.finished = finish
            self._out.preempt = True

    def _notice(self, text: str) -> None:
        self._out.events.append(events.Noticed(text))

    def _effects(self) -> Effects:
        out, self._out = self._out, Effects()
        return out
