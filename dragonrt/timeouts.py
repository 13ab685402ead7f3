"""The timeouts of one side, in one value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The longest waits of the runtime in seconds, and the seconds between probes.

    Of an answer: `mute_s` for a cloud's first useful message, counted anew from each sign that it
    reads the question (one every `probe_s`), for `read_s` in all. `rejoin_s` for a lost or busy
    cloud to return, where the device may go on alone; `answer_s` where it may not, for any later
    message, and for a side to take in what was sent. `join_s` for a federated worker's first
    upload. `reach_s` for a lost connection when a question is asked. `idle_s` until a cloud closes
    a session in which no message comes.

    Of a connection: `connect_s`, `handshake_s`, and `close_s` for the last bytes to leave.
    `silence_s`: a connection without traffic is lost; both sides probe it, with a session every
    `probe_s`, else every `keep_alive_s`. It is dialled again at once, then after `back_off_s`,
    doubling up to `longest_back_off_s`, and at once again when one has lasted that long; sessions
    of one answer are opened again in the same way.
    """

    mute_s: float = 5.0
    read_s: float = 600.0
    rejoin_s: float = 2.0
    answer_s: float = 30.0
    join_s: float = 10.0
    reach_s: float = 0.5
    idle_s: float = 300.0
    connect_s: float = 5.0
    handshake_s: float = 10.0
    close_s: float = 2.0
    silence_s: float = 8.0
    probe_s: float = 1.0
    keep_alive_s: float = 2.5
    back_off_s: float = 0.2
    longest_back_off_s: float = 10.0


USUAL = Timeouts()


class BackOff:
    """The growing pauses between attempts to connect: none before the first one."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._next_s = 0.0

    def take(self) -> float:
        """Return the seconds to wait before the next attempt; lengthen the pause after that."""
        taken = self._next_s
        longer = max(2 * taken, self._timeouts.back_off_s)
        self._next_s = min(longer, self._timeouts.longest_back_off_s)
        return taken

    def lasted(self, seconds: float) -> None:
        """Begin anew, without a pause, if a connection lasted `longest_back_off_s` or more."""
        if seconds >= self._timeouts.longest_back_off_s:
            self._next_s = 0.0
