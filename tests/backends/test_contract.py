"""Every architecture, in every number format, keeps the contract of a backend."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dragonrt.backends.torch_.linear import has_fast_bfloat16, is_row_invariant
from dragonrt.testing.backend_contract import CHECKS, Subject, numbers

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("check", CHECKS)
def test_contract(tiny: Any, dtype: str, check: Callable[[Subject], None]) -> None:
    check(tiny.subject(dtype))


def test_what_is_promised_of_which_type(tiny: Any) -> None:
    assert tiny.subject("float32").info.exact_blocks == tiny.written_out
    assert tiny.subject("bfloat16").info.exact_blocks == (tiny.written_out and has_fast_bfloat16())
    assert not is_row_invariant(torch.float16, CPU)
    assert not is_row_invariant(torch.float32, torch.device("cuda"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
def test_threads_change_no_bit(tiny: Any, dtype: str) -> None:
    on = tiny.subject(dtype)
    if not on.info.exact_blocks:
        pytest.skip("nothing is promised of this type here, or of this architecture")
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(numbers(on.opened().extend_all(on.text(4, 1))).tobytes())
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]
