"""Values as JSON and back; a gap raises only if it is read."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from dragonrt.traces.packed import LONGEST_ARRAY, UnpackError, digest, pack, unpack

LONG = np.linspace(0, 1, LONGEST_ARRAY)


@dataclass(frozen=True)
class Passed:
    numbers: NDArray[Any]


@dataclass(frozen=True)
class Read(Passed):
    packed_whole: ClassVar = True


def test_long_arrays_that_are_read_are_kept() -> None:
    for numbers in (LONG, np.arange(LONGEST_ARRAY, dtype=np.int32).reshape(4, -1)):
        found = unpack(json.loads(json.dumps(pack(Read(numbers))))).numbers
        assert found.dtype == numbers.dtype
        assert np.array_equal(found, numbers)


def test_a_gap_is_an_error_when_it_is_read() -> None:
    passed = unpack(json.loads(json.dumps(pack(Passed(LONG)))))
    assert digest(passed) == digest(Passed(LONG))
    for read in (len, sum, np.asarray, float, bool, lambda gap: gap[0], lambda gap: gap.size):
        with pytest.raises(UnpackError):
            read(passed.numbers)
