"""The timeouts of one side, as one value, and the pauses between attempts to connect."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The longest waits of the runtime in seconds, and the seconds between probes.

    Of an answer: a cloud's first useful message must come within `mute_s`, which begins anew with
    each Working message (the cloud still reads) for up to `read_s`. A lost or busy cloud has
    `rejoin_s` to return, or `answer_s` if the device may not continue alone. `answer_s` is also
    the longest wait for any later message, and for a side to receive what was sent. A federated
    worker has `join_s` for its first upload. Before a question, a lost connection has `reach_s`
    to be restored. A cloud closes a session after `idle_s` without messages.

    Of a connection: `connect_s`, `handshake_s`, and `close_s` to send the last bytes. A connection
    without traffic for `silence_s` is lost, so both sides probe it: every `probe_s` if it has a
    session, else every `keep_alive_s`. A lost connection is dialled again at once, then after
    `back_off_s`, doubled up to `longest_back_off_s`. After a connection of that length or more
    the pauses begin anew. The sessions of one answer are opened again in the same way.
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
    """The growing pauses between attempts to connect; the first attempt has none."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._next_s = 0.0

    def take(self) -> float:
        """Return the seconds to wait before the next attempt, and double the pause after that."""
        taken = self._next_s
        longer = max(2 * taken, self._timeouts.back_off_s)
        self._next_s = min(longer, self._timeouts.longest_back_off_s)
        return taken

    def lasted(self, seconds: float) -> None:
        """Reset the pause to none if a connection lasted `longest_back_off_s` seconds or more."""
        if seconds >= self._timeouts.longest_back_off_s:
            self._next_s = 0.0
