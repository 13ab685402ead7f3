"""How long one side waits for what, in one value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds in seconds, or seconds between probes; every wait of the runtime has one of them.

    `answer_s`: for anything useful of a side that is connected, for a lost one to come back, and
    for a side to take in what was sent; then the device goes on alone. `join_s`: for a federated
    worker's first upload, which reads the question before. `idle_s`: a cloud's session in which
    nothing comes is closed. `reach_s`: a question waits so long for a lost connection before it
    begins without it. `handshake_s`: for a handshake. `silence_s`: a connection on which nothing
    was heard is lost. `probe_s`, `keep_alive_s`: between probes with and without a session.
    `back_off_s`, `longest_back_off_s`: before a lost connection is dialled again, doubling.
    """

    answer_s: float = 30.0
    join_s: float = 10.0
    idle_s: float = 300.0
    reach_s: float = 0.5
    handshake_s: float = 10.0
    silence_s: float = 15.0
    probe_s: float = 1.0
    keep_alive_s: float = 5.0
    back_off_s: float = 0.2
    longest_back_off_s: float = 10.0


USUAL = Patience()
