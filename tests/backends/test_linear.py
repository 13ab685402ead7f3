"""With how many rows products are made: few numbers, and never many rows for nothing."""

import pytest
import torch

from dragonrt.backends.torch_ import linear
from dragonrt.backends.torch_.linear import FEWEST_ROWS, Linear, is_row_invariant, whole_rows


def test_numbers_of_rows_are_few_and_hardly_larger() -> None:
    every = {rows: whole_rows(rows) for rows in range(1, 1025)}
    assert len(set(every.values())) == 28  # oneDNN keeps half a megabyte for each, of each shape
    assert all(
        rows <= whole <= max(FEWEST_ROWS, rows + 3, 1.25 * rows) for rows, whole in every.items()
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("outputs", "inputs"), [(3072, 8192), (4096, 4096), (896, 4864)])
def test_products_of_real_sizes_do_not_depend_on_rows_or_threads(
    outputs: int, inputs: int, dtype: torch.dtype
) -> None:
    if not is_row_invariant(dtype, torch.device("cpu")):
        pytest.skip("nothing is promised of this type here")
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(outputs, inputs, generator=generator).to(dtype)
    bias = torch.randn(outputs, generator=generator).to(dtype)
    x = torch.randn(80, inputs, generator=generator).to(dtype)
    layer = Linear(weight, bias)
    whole = layer(x)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for rows in (*range(1, 17), 33, 64):
                for first in (0, 80 - rows):
                    assert torch.equal(layer(x[first : first + rows]), whole[first : first + rows])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inputs", [40, 1024, 2500])
def test_a_linear_layer_is_the_product(
    packed: bool, inputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "_packing_works", lambda _: packed)
    weight, bias, x = torch.randn(30, inputs), torch.randn(30), torch.randn(5, inputs)
    for own in (bias, None):
        expected = (x.double() @ weight.T.double()).float() + (0 if own is None else own)
        torch.testing.assert_close(Linear(weight, own)(x), expected, atol=1e-3, rtol=0)
