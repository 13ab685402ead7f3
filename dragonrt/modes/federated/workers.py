"""Track the workers (clouds) of mode `federated`; weigh, time and mix their uploads (SPEC 3)."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.distributions import Codec, Step, codec, mix
from dragonrt.errors import CodecError, DragonError
from dragonrt.modes.blocks import ReadBlock, Uploads
from dragonrt.modes.federated.settings import FederatedResources, FederatedSettings, Weighing
from dragonrt.modes.messages import Upload
from dragonrt.modes.mode import ModeError, Prediction
from dragonrt.modes.question import Question
from dragonrt.modes.verifier import Judging
from dragonrt.sampling.rules import SpeculativeRule, relevance_weights, renormalise
from dragonrt.traces.events import Noticed, NoticeKind
from dragonrt.wire.fields import MAX_UPLOAD
from dragonrt.wire.reasons import End, Reason

LEAST_DEADLINE_S = 1.0
DEADLINE_FACTOR = 4.0
REMEMBERED_ROUNDS = 16
NEVER_CONNECTED = End(Reason.LOST, "it is not connected")


def deadline_s(round_trips: Sequence[Sequence[float]]) -> float:
    """Return a round's default deadline in seconds: four times the slowest worker's median delay.

    `round_trips` has for each worker the seconds from block to upload in its newest rounds. Late
    uploads count, so a slow worker lengthens the deadline. The least is LEAST_DEADLINE_S.
    """
    slowest = max((median(each) if each else 0.0 for each in round_trips), default=0.0)
    return max(LEAST_DEADLINE_S, DEADLINE_FACTOR * slowest)


def round_weights(
    weighing: Weighing, weights: Sequence[float], relevances: Sequence[float | None]
) -> tuple[float, ...]:
    """Return each worker's share in a round's mixture, 0 for a missing worker (relevance None).

    If `weighing` is "fixed", shares are `weights` scaled to sum 1. Otherwise they are the softmax
    of `relevances`, how relevant each worker's documents are. SamplingError if all are missing.
    """
    if weighing == "fixed":
        pairs = zip(weights, relevances, strict=True)
        return renormalise([0.0 if h is None else weight for weight, h in pairs])
    found = iter(relevance_weights([h for h in relevances if h is not None]))
    return tuple(0.0 if h is None else next(found) for h in relevances)


@dataclass(slots=True, eq=False)
class Worker:
    """The coordinator's state of one worker during one answer.

    `asked` is the round whose block was sent to the worker and has no reply yet, or None. The
    worker has the first `known` decided tokens. If `refused`, it is lost for this answer.
    """

    name: str
    weight: float
    session: int | None = None
    opened: bool = False
    refused: bool = False
    known: int = 0
    asked: int | None = None
    asked_s: float = 0.0
    received: Upload | None = None
    round_trips: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED_ROUNDS))
    loss: End = NEVER_CONNECTED

    @property
    def here(self) -> bool:
        return self.session is not None

    @property
    def idle(self) -> bool:
        """Whether the worker can get a block of drafts: it is connected and answered the last."""
        return self.here and self.asked is None

    @property
    def silence(self) -> End:
        """Why no upload of the worker came: it does not reply, or the reason its session ended."""
        return End(Reason.MUTE, "it does not answer") if self.here else self.loss

    def gone(self) -> None:
        """Forget the worker's session and open request, as the session ended or is replaced."""
        self.session, self.opened, self.asked = None, False, None

    def lost(self, end: End, *, returns: bool) -> None:
        self.gone()
        self.loss, self.refused = end, not returns


def attendance_notices(
    workers: Iterable[Worker], missing: Collection[str], absent: Collection[str], step: int
) -> list[Noticed]:
    """Return notices for the user of workers that went missing, or came back, in a round.

    `missing` names the workers without an upload in this round, `absent` those of the round before.
    `step` is the first step that the round decides.
    """
    notices = []
    for worker in workers:
        if worker.name in missing and worker.name not in absent:
            text = f"{worker.name} is missing from token {step} on: "
            if worker.here:
                notices.append(Noticed(NoticeKind.LATE, f"{text}it missed the deadline"))
            else:
                loss = worker.loss
                notices.append(Noticed(NoticeKind.ABSENT, f"{text}{loss}", loss.reason))
        elif worker.name not in missing and worker.name in absent:
            text = f"{worker.name} has rejoined at token {step}"
            notices.append(Noticed(NoticeKind.BACK, text))
    return notices


def longest_upload(code: Codec) -> int:
    """Return the most bytes that a worker may upload for one block of drafts by codec `code`."""
    return min(code.longest, MAX_UPLOAD)


class FederatedJudging(Judging):
    """On a worker, answers a block of drafts with its quantized distribution at each draft.

    No sampler has changed these: the device samples from the mixture of all workers (SPECFED 4).
    """

    def __init__(
        self, question: Question, settings: FederatedSettings, resources: FederatedResources
    ) -> None:
        self.codec = codec("ids", resources.vocabulary)
        self._uploads = codec(settings.codec, resources.vocabulary)

    @override
    def answer(self, block: ReadBlock, predictions: Sequence[Prediction]) -> Uploads:
        payloads, size, longest = [], 0, longest_upload(self._uploads)
        for step, each in enumerate(predictions, start=block.step):
            quantized = self._uploads.quantize(each.p, Step(step))
            payloads.append(self._uploads.encode(quantized))
            size += len(payloads[-1])
            if size > longest:
                raise ModeError(
                    f"an upload by the codec {self._uploads.name} would have more than "
                    f"{longest} bytes: draft shorter blocks or use a coarser codec"
                )
        return Uploads(predictions[0].relevance, tuple(payloads))


class UploadError(DragonError):
    """The upload of the worker called `worker` cannot be decoded."""

    def __init__(self, worker: str, error: DragonError) -> None:
        super().__init__(str(error))
        self.worker = worker


def mixture(
    rule: SpeculativeRule,
    code: Codec,
    uploads: Mapping[str, Upload],
    shares: Sequence[float],
    place: int,
) -> NDArray[np.float64]:
    """Mix the workers' distributions for position `place` of a block; apply the rule's sampler.

    `place` counts from 0; `shares` are the weights of `uploads`, in order. Returns the target's
    probabilities, float64 [V]. Raises UploadError if an upload cannot be decoded.
    """
    each = []
    for name, upload in uploads.items():
        try:
            each.append(code.decode(upload.payloads[place]))
        except CodecError as error:
            raise UploadError(name, error) from error
    return rule.shape(mix(each, shares).to_dense())
