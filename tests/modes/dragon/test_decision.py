"""What two drafts of a step come to."""

import numpy as np
import pytest

from dragonrt.distributions import CodecError, Step, codec, encode_distribution
from dragonrt.modes.dragon.decision import decoded, mixed
from dragonrt.modes.dragon.drafts import SideDraft
from dragonrt.sampling.aggregation import rule
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler


def test_a_step_is_mixed_from_two_decoded_drafts() -> None:
    """The share is the device's part of the target's probability; Eq. 5 only where it is wanted."""
    by = rule("coupled", Noise(0), Sampler(0.0))
    code = codec("dense:fp32", 3)

    def of(p: list[float], relevance: float) -> SideDraft:
        quantized = code.quantize(np.array(p), Step(2))
        payload = encode_distribution(code, quantized)
        return SideDraft(2, 9, int(np.argmax(p)), payload, relevance, 0.0)

    device, cloud = of([0.5, 0.1, 0.4], 0.0), of([0.1, 0.3, 0.6], float(np.log(3)))
    with pytest.raises(ValueError):  # noqa: PT011
        mixed(by, device, cloud)
    both = decoded(code, device), decoded(code, cloud)
    found = mixed(by, *both, expects=True)
    assert found.token == 2  # 0.25 * 0.4 + 0.75 * 0.6
    assert found.share == pytest.approx(0.1 / 0.55, abs=1e-6)
    assert found.expected is not None
    assert mixed(by, *both).expected is None
    with pytest.raises(CodecError):
        decoded(code, SideDraft(2, 9, 1, b"\xff\xff", 0.0, 0.0))
