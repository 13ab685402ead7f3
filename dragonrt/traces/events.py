"""The events of a trace, each a frozen type; times are seconds.

A Record adds time and session. `step` is an answer token's index from 0, `round` a block's number.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from dragonrt.side import Side
from dragonrt.wire.reasons import Reason

Cause = Literal["own", "other", "target"]


class Event(Struct, frozen=True, tag_field="event", omit_defaults=True, forbid_unknown_fields=True):
    """The base class of all events. The tag of a class is its name in a trace file."""


class TraceStarted(Event, frozen=True, tag="start"):
    """The first event of a trace file. Files with the same `clock` have comparable times."""

    schema: int
    version: str
    model: str
    clock: str


class AnswerOpened(Event, frozen=True, tag="open"):
    """An answer begins, or resumes after `accepted` tokens, with `settings` of question and mode.

    Records of its session, and of the workers' sessions in mode `federated`, belong to the answer
    until the next AnswerOpened of that session, as does an Open message just before this event. If
    the answer is not `exact`, drafts may be accepted without verification.
    """

    mode: str
    accepted: int
    settings: Mapping[str, Any]
    exact: bool = True


class SideReady(Event, frozen=True, tag="ready"):
    """This side loaded documents in `load` seconds, and read the question in `prefill` seconds."""

    load: float
    prefill: float
    prompt_tokens: int


class ForwardDone(Event, frozen=True, tag="decode"):
    """A forward ended after `seconds`. It made `tokens` predictions, the first for `step`."""

    step: int
    tokens: int
    seconds: float


class Drafted(Event, frozen=True, tag="draft"):
    """This side drafted a token for `step` of the answer."""

    step: int


class MessageSent(Event, frozen=True, tag="send"):
    """This side sent a message of type `message`, in a frame of `bytes` without padding."""

    message: str
    bytes: int
    step: int | None = None
    round: int | None = None


class MessageReceived(Event, frozen=True, tag="receive"):
    """This side received a message of type `message`, in a frame of `bytes` without padding."""

    message: str
    bytes: int
    step: int | None = None
    round: int | None = None


class TokenDecided(Event, frozen=True, tag="decide"):
    """A token was decided. `device` and `cloud`: whether that side's draft, if any, was accepted.

    `cause` is the last input of the decision: the own draft, the other's, or a target. `waited` is
    the time since the last decision. `share` is the device's part of the token's probability; if a
    target verifies, 1 for an accepted draft, else 0. `document` is the index of the own chunk with
    the largest part. `evidence` is log2 of the token's probability in the mixture over that by the
    cloud alone, None if unknown. `files` has, for each own file, log2 of that in the mixture over
    that in a mixture without the file. A `withheld` token is not sent to the cloud. A sent one
    reveals `revealed` bits: log2 of its probability by the device over the cloud's, at least 0.
    """

    step: int
    token: int
    device: bool | None
    cloud: bool | None
    cause: Cause
    waited: float
    share: float
    document: int | None = None
    evidence: float | None = None
    files: tuple[float, ...] = ()
    withheld: bool = False
    revealed: float | None = None

    def accepted(self, side: Side) -> bool | None:
        """Return whether the draft of `side` became the token; None if no draft was compared."""
        return self.device if side == "device" else self.cloud


class TokenRanked(Event, frozen=True, tag="rank"):
    """A token's mixture `probability` and the likeliest `tokens`, if `top_logprobs` is set."""

    step: int
    token: int
    probability: float
    tokens: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()


class Disclosed(Event, frozen=True, tag="disclose"):
    """A message left the device. This is the ledger's entry of what it discloses (SPEC 1.10).

    It counts bytes of the `question` and of the `history`, `tokens`, `distributions`, and
    `documents` named as sources. A sent draft is `token`, for that `step` of the answer.
    """

    message: str
    question: int = 0
    history: int = 0
    tokens: int = 0
    distributions: int = 0
    documents: int = 0
    step: int | None = None
    token: int | None = None


class BlockSent(Event, frozen=True, tag="block"):
    """A block of `tokens` drafts was sent in `bits` bits. Drafting it took `seconds`."""

    round: int
    step: int
    tokens: int
    bits: int
    seconds: float


class BlockJudged(Event, frozen=True, tag="verdict"):
    """A block of `tokens` drafts was verified. Its first `accepted` ones are decided, then `token`.

    `waited` is the time from sending to result, on the cloud the time in the queue. `verify` is
    the time of the forward, 0 if the block was compared with the cloud's own tokens.
    """

    round: int
    tokens: int
    accepted: int
    token: int
    waited: float
    verify: float


class TargetDecoded(Event, frozen=True, tag="decoded"):
    """The cloud decided the token of `step` in its own forward, as it had no block to verify."""

    step: int
    token: int


class BlockOutrun(Event, frozen=True, tag="outrun"):
    """A block gets no verdict any more; its first `tokens` drafts are decided."""

    round: int
    tokens: int


class RoundDecided(Event, frozen=True, tag="round"):
    """Workers' uploads mixed by `weights` gave `decided` tokens; `missing` workers sent none."""

    round: int
    step: int
    decided: int
    weights: Mapping[str, float]
    missing: tuple[str, ...]


class ThresholdMoved(Event, frozen=True, tag="threshold"):
    """At `step`, C-SQS cut off the probabilities below `beta`; `dropped` is their sum."""

    step: int
    beta: float
    dropped: float


class RolledBack(Event, frozen=True, tag="rollback"):
    """The token decided at `step` rejected this side's drafts; `dropped` tokens are discarded."""

    step: int
    dropped: int


class ForwardPreempted(Event, frozen=True, tag="preempt"):
    """This side asked to stop its forward for `step`, because the input was rejected."""

    step: int


class ForwardStopped(Event, frozen=True, tag="stopped"):
    """The preempted forward for `step` stopped after `seconds`."""

    step: int
    seconds: float


class LatencyEstimated(Event, frozen=True, tag="estimate"):
    """`difference` (ΔZ): seconds per token saved if the cloud alone decides (DRAGON Eq. 8).

    `device`, `cloud`: the share of accepted drafts; `device_s`, `cloud_s`: seconds per draft.
    """

    step: int
    difference: float
    rtt: float
    device: float
    cloud: float
    device_s: float
    cloud_s: float


class AggregatorSwitched(Event, frozen=True, tag="switch"):
    """Side `to` decides from `step` on, to save an estimated `difference` of seconds per token."""

    step: int
    to: Side
    difference: float


class TextsDiverged(Event, frozen=True, tag="diverge"):
    """The two sides decided different first `step` tokens: a defect (SPEC 1.3)."""

    step: int


class LinkProbed(Event, frozen=True, tag="probe"):
    """A probe measured a round trip in seconds or, by a timed burst, the bandwidth in bit/s."""

    rtt: float | None = None
    bandwidth: float | None = None


class WentAlone(Event, frozen=True, tag="alone"):
    """The other side was lost: this side decides alone from `step` on."""

    step: int


class Rejoined(Event, frozen=True, tag="resume"):
    """The other side has rejoined, and takes part from `step` on."""

    step: int


class NoticeKind(StrEnum):
    """The subject of a notice, one word. Programs and tests match the kind, never the text."""

    ALONE = "alone"  # this side continues alone
    WAITING = "waiting"  # the answer waits for another side
    PARTED = "parted"  # the lost cloud receives no more of this answer
    ABSENT = "absent"  # a worker is lost
    LATE = "late"  # a worker missed the deadline of a round
    BACK = "back"  # a worker has rejoined
    DISAGREEMENT = "disagreement"  # documents hold another value than the answer
    BEGINNING = "beginning"  # only the beginning of a document is read
    LOST = "lost"  # a connection is lost
    CONNECTED = "connected"  # a connection is open, or open again
    REFUSED = "refused"  # another side refuses this side
    UNREACHED = "unreached"  # another side cannot be reached yet
    CUT = "cut"  # a document has chunks that are longer than the model reads
    STORE = "store"  # computed KV is not stored


class Noticed(Event, frozen=True, tag="notice"):
    """A one-line notice for the user. If a session or connection ended, `reason` says why."""

    kind: NoticeKind
    text: str
    reason: Reason | None = None


OnNotice = Callable[[Noticed], None]


class AnswerClosed(Event, frozen=True, tag="close"):
    """The answer ended; `finish` is stop, length, cancelled or error.

    A device adds the bytes on its connections during the answer, with probes and padding, and the
    round trip `rtt`. `frame_wait` is a message's mean wait for a frame at a constant rate.
    """

    finish: str
    bytes_sent: int = 0
    bytes_received: int = 0
    rtt: float | None = None
    padding_sent: int = 0
    padding_received: int = 0
    frame_wait: float | None = None


EVENTS: tuple[type[Event], ...] = tuple(Event.__subclasses__())
"""All types of events, in the order of the documentation."""

if TYPE_CHECKING:
    AnyEvent: TypeAlias = Event
else:
    AnyEvent = reduce(or_, EVENTS)


class Record(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An event with its time on the writer's loop clock, its side, and the session it belongs to.

    `session` is 0 for none, and is reused after a reconnection. `peer` is the device's address on a
    cloud; on a device with several workers it is a worker's name.
    """

    t: float
    side: Side
    session: int
    event: AnyEvent
    peer: str = ""
