"""The workers of a federated round: weights, deadlines, absence (SPEC 3)."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from dragonrt.modes.federated.settings import Weighing
from dragonrt.sampling.aggregation import relevance_weights, renormalise
from dragonrt.traces.events import Noticed, NoticeKind
from dragonrt.wire.reasons import End, Reason

LEAST_DEADLINE_S = 1.0
DEADLINE_FACTOR = 4.0
REMEMBERED_ROUNDS = 16
NEVER_CONNECTED = End(Reason.LOST, "it is not connected")


def deadline_s(round_trips: Sequence[Sequence[float]]) -> float:
    """Return the default deadline of a round: four times the slowest worker's median.

    Each has the seconds from block to upload of its newest rounds, late ones included: a worker
    that is always slow is waited for.
    """
    slowest = max((median(each) if each else 0.0 for each in round_trips), default=0.0)
    return max(LEAST_DEADLINE_S, DEADLINE_FACTOR * slowest)


def round_weights(
    weighing: Weighing, weights: Sequence[float], relevances: Sequence[float | None]
) -> tuple[float, ...]:
    """Return the weights of a round, 0 for each missing worker: its relevance is None.

    Raises SamplingError if all are missing.
    """
    present = [relevance is not None for relevance in relevances]
    if weighing == "fixed":
        return renormalise(weights, present)
    found = iter(relevance_weights([h for h in relevances if h is not None]))
    return tuple(next(found) if here else 0.0 for here in present)


@dataclass(frozen=True, slots=True)
class Received:
    """An upload of round `round`: p̃ after each prefix of the block, as it came, and h̃."""

    round: int
    payloads: Sequence[bytes]
    relevance: float
    verify_s: float


@dataclass(slots=True, eq=False)
class Worker:
    """The coordinator's state of one worker during one answer.

    It has at most one unanswered block, that of round `asked`. It knows the first `known` decided
    tokens. If `refused`, it will not come back.
    """

    name: str
    weight: float
    session: int | None = None
    opened: bool = False
    refused: bool = False
    known: int = 0
    asked: int | None = None
    asked_s: float = 0.0
    received: Received | None = None
    round_trips: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED_ROUNDS))
    loss: End = NEVER_CONNECTED

    @property
    def here(self) -> bool:
        """Whether it has a session."""
        return self.session is not None

    @property
    def idle(self) -> bool:
        """Whether a block can be sent to it."""
        return self.here and self.asked is None

    @property
    def silence(self) -> End:
        """The reason for a missing upload."""
        return End(Reason.MUTE, "it does not answer") if self.here else self.loss

    def gone(self) -> None:
        """Forget its session, which is over."""
        self.session, self.opened, self.asked = None, False, None

    def lost(self, end: End, *, returns: bool) -> None:
        """Take the end of its session."""
        self.gone()
        self.loss, self.refused = end, not returns


def attendance(
    workers: Iterable[Worker], missing: Collection[Worker], absent: Collection[str], step: int
) -> list[Noticed]:
    """Return notices of who is missing from a round from `step` on, or no longer `absent`."""
    notices = []
    for worker in workers:
        if worker in missing and worker.name not in absent:
            text = f"{worker.name} takes no part from token {step} on: "
            if worker.here:
                notices.append(Noticed(NoticeKind.LATE, f"{text}it missed the deadline"))
            else:
                loss = worker.loss
                notices.append(Noticed(NoticeKind.ABSENT, f"{text}{loss}", loss.reason))
        elif worker not in missing and worker.name in absent:
            text = f"{worker.name} takes part again from token {step} on"
            notices.append(Noticed(NoticeKind.BACK, text))
    return notices
