"""Attention gives the same bits however its queries are cut into blocks and batches."""

from itertools import pairwise

import pytest
import torch

from dragonrt.language import DocumentKV
from dragonrt.language.decoder import Geometry, LayerShape
from dragonrt.language.kv_cache import KvCache

TOKENS = 24
# lengths at which larger products than those of `rows` would differ
LENGTHS = (0, 77, 300, 93)


class Attention:
    """Random queries, keys and values of four rows, attended to in any grouping."""

    def __init__(self, group: int, head_dim: int) -> None:
        torch.manual_seed(group)
        self.shape = LayerShape(heads=2, key_dim=head_dim, value_dim=head_dim)
        self.documents = [
            DocumentKV((torch.randn(2, n, head_dim),), (torch.randn(2, n, head_dim),))
            for n in LENGTHS
        ]
        self.queries = torch.randn(len(LENGTHS), TOKENS, 2 * group, head_dim)
        self.keys = torch.randn(len(LENGTHS), TOKENS, 2, head_dim)
        self.values = torch.randn(len(LENGTHS), TOKENS, 2, head_dim)

    def run(self, rows: list[int], cuts: list[int]) -> torch.Tensor:
        """Outputs [rows, TOKENS, hidden], computed block by block."""
        geometry = Geometry((self.shape,), 1, 1, 1000, torch.float32, torch.device("cpu"))
        cache = KvCache(geometry, [self.documents[row] for row in rows], TOKENS)
        outputs = []
        for start, stop in pairwise(cuts):
            block = cache.block(start, stop - start)
            queries, keys, values = (
                tensor[rows, start:stop].flatten(0, 1)
                for tensor in (self.queries, self.keys, self.values)
            )
            cache.write(0, keys, values, block)
            outputs.append(cache.attend(0, queries, block).view(len(rows), stop - start, -1))
        return torch.cat(outputs, dim=1)

    def expected(self, row: int) -> torch.Tensor:
        """The definition, in float64: [TOKENS, hidden]."""
        document, length = self.documents[row], LENGTHS[row]
        group = self.queries.shape[2] // 2
        keys = torch.cat((document.keys[0], self.keys[row].transpose(0, 1)), dim=1)
        values = torch.cat((document.values[0], self.values[row].transpose(0, 1)), dim=1)
        keys, values = (x.double().repeat_interleave(group, 0) for x in (keys, values))
        queries = self.queries[row].transpose(0, 1).double()
        scores = queries @ keys.transpose(1, 2) / self.shape.key_dim**0.5
        scores += torch.full_like(scores, float("-inf")).triu(length + 1)
        mixed: torch.Tensor = scores.softmax(-1) @ values
        return mixed.transpose(0, 1).flatten(1)


@pytest.mark.parametrize("head_dim", [56, 64, 128])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 6, 7, 8])
def test_blocks_and_batches_do_not_change_a_bit(group: int, head_dim: int) -> None:
    attention = Attention(group, head_dim)
    together = list(range(len(LENGTHS)))
    whole = attention.run(together, [0, TOKENS])
    assert torch.equal(attention.run(together, list(range(TOKENS + 1))), whole)
    assert torch.equal(attention.run(together, [0, 7, 8, 13, TOKENS]), whole)
    for row in together:
        assert torch.equal(attention.run([row], [0, 5, TOKENS])[0], whole[row])
        torch.testing.assert_close(whole[row].double(), attention.expected(row), atol=1e-5, rtol=0)
