"""Uploads of workers, which the coordinator reads and mixes (SPEC 3)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.distributions import (
    Codec,
    Step,
    codec,
    encode_distribution,
    mix,
)
from dragonrt.errors import CodecError, DragonError
from dragonrt.modes.blocks.values import ReadBlock, Uploads
from dragonrt.modes.blocks.verifier import Judging
from dragonrt.modes.federated.membership import (
    Received,
)
from dragonrt.modes.federated.settings import FederatedResources, FederatedSettings
from dragonrt.modes.mode import (
    ModeError,
    Prediction,
)
from dragonrt.modes.question import Question
from dragonrt.sampling.verification import SpeculativeRule
from dragonrt.wire.fields import MAX_UPLOAD


def longest_upload(code: Codec) -> int:
    """Bytes of an upload that is read in reasonable time and fits into its message."""
    return min(code.longest, MAX_UPLOAD)


class FederatedJudging(Judging):
    """A worker's answers: its distributions, truncated (SPECFED step 4).

    They are the model's own: sampling parameters apply to the mixture, at the coordinator.
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
            payloads.append(encode_distribution(self._uploads, quantized))
            size += len(payloads[-1])
            if size > longest:
                raise ModeError(
                    f"an upload by the codec {self._uploads.name} would have more than "
                    f"{longest} bytes: draft shorter blocks or use a coarser codec"
                )
        return Uploads(predictions[0].relevance, tuple(payloads))


class UploadError(DragonError):
    """The upload of a worker cannot be read."""

    def __init__(self, worker: str, error: DragonError) -> None:
        super().__init__(str(error))
        self.worker = worker


class Mixed(Sequence[NDArray[np.float64]]):
    """The mixtures to verify with, read and mixed on access: nothing behind a rejected token is."""

    def __init__(
        self,
        rule: SpeculativeRule,
        code: Codec,
        uploads: Mapping[str, Received],
        shares: Sequence[float],
    ) -> None:
        self._rule, self._codec = rule, code
        self._uploads, self._shares = uploads, shares

    @override
    def __len__(self) -> int:
        return min(len(upload.payloads) for upload in self._uploads.values())

    @override
    def __getitem__(self, index: Any) -> Any:
        each = []
        for name, upload in self._uploads.items():
            try:
                each.append(self._codec.decode(upload.payloads[index]))
            except CodecError as error:
                raise UploadError(name, error) from error
        return self._rule.shape(mix(each, self._shares).to_dense())
