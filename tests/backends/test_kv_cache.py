"""Attention gives the same bits however its queries are cut into blocks and batches."""

from itertools import pairwise

import pytest
import torch

from dragonrt.backends.torch_.attention import PLAIN, AttentionForm
from dragonrt.backends.torch_.backend import Geometry, LayerShape
from dragonrt.backends.torch_.document import DocumentKV
from dragonrt.backends.torch_.kv_cache import KvCache

TOKENS = 70
# lengths at which larger products in float32 would differ, and at which a tile of columns ends
LENGTHS = (0, 115, 300, 700)


class Attention:
    """Random queries, keys and values of four rows, attended to in any grouping."""

    def __init__(
        self,
        group: int,
        head_dim: int,
        dtype: torch.dtype,
        form: AttentionForm = PLAIN,
    ) -> None:
        generator = torch.Generator().manual_seed(group)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator).to(dtype)

        self.dtype, self.form = dtype, form
        self.shape = LayerShape(heads=2, key_dim=head_dim, value_dim=head_dim)
        self.documents = [
            DocumentKV((random(2, n, head_dim),), (random(2, n, head_dim),)) for n in LENGTHS
        ]
        self.queries = random(len(LENGTHS), TOKENS, 2 * group, head_dim)
        self.keys = random(len(LENGTHS), TOKENS, 2, head_dim)
        self.values = random(len(LENGTHS), TOKENS, 2, head_dim)

    def run(self, rows: list[int], cuts: list[int]) -> torch.Tensor:
        """Outputs [rows, TOKENS, hidden], computed block by block."""
        geometry = Geometry((self.shape,), 1, 1000, self.dtype, torch.device("cpu"))
        cache = KvCache(geometry, [self.documents[row] for row in rows], TOKENS)
        outputs = []
        for start, stop in pairwise(cuts):
            block = cache.layout(start, stop - start)
            queries, keys, values = (
                tensor[rows, start:stop].flatten(0, 1)
                for tensor in (self.queries, self.keys, self.values)
            )
            cache.write(0, torch.cat((keys, values), dim=1), block)
            attended = cache.attend(0, queries.float(), block, self.form)
            outputs.append(attended.view(len(rows), stop - start, -1))
        return torch.cat(outputs, dim=1)

    def expected(self, row: int) -> torch.Tensor:
        """The definition, in float64: [TOKENS, hidden]."""
        document, length = self.documents[row], LENGTHS[row]
        group = self.queries.shape[2] // 2
        keys = torch.cat((document.keys[0], self.keys[row].transpose(0, 1)), dim=1)
        values = torch.cat((document.values[0], self.values[row].transpose(0, 1)), dim=1)
        keys, values = (x.double().repeat_interleave(group, 0) for x in (keys, values))
        queries = self.queries[row].transpose(0, 1).double()
        scores = queries @ keys.transpose(1, 2)
        scores *= self.shape.key_dim**-0.5 if self.form.scale is None else self.form.scale
        if self.form.soft_cap is not None:
            scores = self.form.soft_cap * torch.tanh(scores / self.form.soft_cap)
        scores += torch.full_like(scores, float("-inf")).triu(length + 1)
        if self.form.window is not None:
            scores += torch.full_like(scores, float("-inf")).tril(length - self.form.window)
        mixed: torch.Tensor = scores.softmax(-1) @ values
        return mixed.transpose(0, 1).flatten(1)


def check(attention: Attention, atol: float) -> None:
    together = list(range(len(LENGTHS)))
    whole = attention.run(together, [0, TOKENS])
    assert torch.equal(attention.run(together, list(range(TOKENS + 1))), whole)
    assert torch.equal(attention.run(together, [0, 7, 8, 13, TOKENS]), whole)
    for row in together:
        assert torch.equal(attention.run([row], [0, 5, TOKENS])[0], whole[row])
        torch.testing.assert_close(whole[row].double(), attention.expected(row), atol=atol, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [56, 64, 128])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 6, 7, 8])
def test_blocks_and_batches_do_not_change_a_bit(
    group: int, head_dim: int, dtype: torch.dtype
) -> None:
    check(Attention(group, head_dim, dtype), 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "form",
    [
        AttentionForm(scale=0.3),
        AttentionForm(window=20),
        AttentionForm(window=300, soft_cap=1.5),
        AttentionForm(scale=0.2, soft_cap=0.5),
    ],
)
def test_windows_scales_and_soft_caps(form: AttentionForm, dtype: torch.dtype) -> None:
    check(Attention(4, 64, dtype, form), 1e-5)
