"""The messages of mode dragon."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta
from typing_extensions import override

from dragonrt.modes.messages import Target, message
from dragonrt.privacy.disclosure import NOTHING
from dragonrt.side import Side
from dragonrt.wire.fields import U32, Finite, Hash, Payload, Step, Time, Token
from dragonrt.wire.messages import Opened, SessionMessage, Working
from dragonrt.wire.reasons import MessageError, Reason

LARGEST_COEFFICIENT = 1e9
"""Of such Coefficients: no side is that slow."""
LARGEST_LOSS = 100.0
"""Of a side's weight in a value, as a logarithm."""


@message(
    7,
    early=True,
    discloses=lambda message, marker: {
        "tokens": 1,
        "distributions": 1,
        "step": message.step,
        "token": message.token,
    },
)
class Draft(SessionMessage, frozen=True):
    """One side's draft of step `step`: token, encoded distribution, relevance (SPEC 1.3).

    `prefix_hash` is of the text before `step`, `relevance` the h of SPEC 1 (log-sum-exp of the
    relevances), `payload` the codec's bytes. `kept` is the logarithm of the share of its weight
    that the sender keeps: below 0 in a value that some of its documents do not hold (SPEC 5). The
    sender has decided the first `step - ahead` tokens; `decided_hash` is the low half of their
    hash. A scheduler uses the times: `decode_us` of the forward (0: none), `time_us` of the
    sending, `echo_us` the receiver's newest time and its hold.
    """

    step: Step
    prefix_hash: Hash
    token: Token
    relevance: Finite
    decode_us: Time
    ahead: Step
    decided_hash: U32
    payload: Payload
    time_us: Time = 0
    echo_us: Time = 0
    kept: Annotated[float, Meta(ge=-LARGEST_LOSS, le=0.0)] | Literal[0] = 0

    def __post_init__(self) -> None:
        if self.ahead > self.step:
            raise MessageError(Reason.MALFORMED, "ahead must not reach before the first step")

    @override
    def listed(self) -> Sequence[int]:
        return (self.token,)


@message(16, early=True, discloses=lambda message, marker: NOTHING)
class Coefficients(SessionMessage, frozen=True):
    """The sender's expected time for a draft of step t: k_a / k_b · t + k_c seconds (SPEC 1.4).

    Sent once if one side schedules, so that both schedule by the same.
    """

    k_a: Annotated[float, Meta(ge=-LARGEST_COEFFICIENT, le=LARGEST_COEFFICIENT)]
    k_b: Annotated[float, Meta(ge=1.0, le=LARGEST_COEFFICIENT)]
    k_c: Annotated[float, Meta(ge=0.0, le=LARGEST_COEFFICIENT)]


ADMITTED: Final[Mapping[Side, tuple[type[SessionMessage], ...]]] = {
    "device": (Working, Opened, Draft),
    "cloud": (Target,),
}
"""All messages that a side accepts if the device keeps its drafts."""

_PLACE: Final = (0, 0, 0)
SENT: Final[Sequence[SessionMessage]] = (
    Draft(*_PLACE, 0, 0.0, 0, 0, 0, bytes(1)),
    Target(*_PLACE, 0, "device"),
    Coefficients(0, 0.0, 1.0, 0.0),
)
"""The messages that a device may send, one of each type, for `privacy.preview`."""
