"""A worker's part of a federated answer: what it uploads of a block (SPEC 3; SPECFED step 4)."""

from collections.abc import Sequence

from dragonrt.distributions import Codec, Step, codec, decode_block, encode_distribution
from dragonrt.modes.judging import ReadBlock, Uploads
from dragonrt.modes.mode import ModeError, Prediction
from dragonrt.modes.question import Question
from dragonrt.modes.settings import FederatedSettings
from dragonrt.wire import messages as wire
from dragonrt.wire.limits import MAX_UPLOAD


def longest_upload(code: Codec) -> int:
    """Bytes of an upload that is read in reasonable time and fits into its message."""
    return min(code.longest, MAX_UPLOAD)


class FederatedJudging:
    """Implements Judging for a worker: its distributions, truncated (SPECFED step 4).

    They are the model's own: sampling parameters apply to the mixture, at the coordinator.
    """

    def __init__(self, question: Question, settings: FederatedSettings, vocabulary: int) -> None:
        self._ids = codec("ids", vocabulary)
        self._codec = codec(settings.codec, vocabulary)

    def read(self, block: wire.Block) -> ReadBlock:
        steps = [Step(block.step + place) for place in range(block.count)]
        tokens, _ = decode_block(self._ids, block.payload, steps)
        return ReadBlock(block.step, tokens, None)

    def answer(self, block: ReadBlock, said: Sequence[Prediction]) -> Uploads:
        payloads, size, longest = [], 0, longest_upload(self._codec)
        for step, each in enumerate(said, start=block.step):
            quantized = self._codec.quantize(each.p, Step(step))
            payloads.append(encode_distribution(self._codec, quantized))
            size += len(payloads[-1])
            if size > longest:
                raise ModeError(
                    f"an upload by the codec {self._codec.name} would have more than "
                    f"{longest} bytes: draft shorter blocks or use a coarser codec"
                )
        return Uploads(said[0].relevance, tuple(payloads))
