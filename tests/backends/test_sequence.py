"""The contract every architecture keeps: rows as if alone, cut back as if never extended."""

import copy
import random
from itertools import pairwise
from typing import Any

import pytest
import torch

from dragonrt.backends import DocumentKV, ModelError, Preempted, Preemption, Sequence
from dragonrt.backends.sequence import document_kv
from dragonrt.backends.torch_.linear import PackedLinear, pack_linear_layers

VOCABULARY = 97
CONTEXT = 160
DOCUMENT_LENGTHS = (37, 0, 5, 61)


def text(length: int, seed: int) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(2, VOCABULARY) for _ in range(length)]


def documents(tiny: Any) -> list[DocumentKV]:
    return [document_kv(tiny.decoder, text(n, n)) for n in DOCUMENT_LENGTHS]


class CountedPreemption(Preemption):
    """Requests a stop at its n-th check."""

    def __init__(self, checks: int) -> None:
        super().__init__()
        self.checks = checks

    @property
    def requested(self) -> bool:
        self.checks -= 1
        if self.checks == 0:
            self.request()
        return super().requested


def test_every_row_equals_its_text_alone_in_transformers(tiny: Any) -> None:
    question = text(20, seed=1)
    sequence = Sequence(tiny.decoder, documents(tiny), 64)
    rows = sequence.extend_all(question)
    last = sequence.extend(text(1, seed=2))
    assert rows.shape == (4, 20, VOCABULARY)
    assert rows.dtype == torch.float32
    for row, length in enumerate(DOCUMENT_LENGTHS):
        expected = tiny.expected(text(length, length) + question + text(1, seed=2))
        torch.testing.assert_close(rows[row], expected[length:-1], atol=5e-6, rtol=0)
        torch.testing.assert_close(last[row], expected[-1], atol=5e-6, rtol=0)


def test_a_fork_goes_on_as_a_sequence_of_its_own(tiny: Any) -> None:
    """To the bit, and so does the one that it was made of, whichever is extended first."""
    question, texts = text(20, seed=1), [text(6, seed=2), text(6, seed=3)]
    sequence = Sequence(tiny.decoder, documents(tiny), 64)
    sequence.extend_all(question)
    for tokens, each in zip(texts, (sequence.fork(), sequence), strict=True):
        fresh = Sequence(tiny.decoder, documents(tiny), 64)
        fresh.extend_all(question)
        assert torch.equal(each.extend_all(tokens), fresh.extend_all(tokens))


def test_hidden_states_are_what_the_output_layer_of_transformers_reads(tiny: Any) -> None:
    question = text(20, seed=1)
    sequence = Sequence(tiny.decoder, documents(tiny), 64)
    rows, hidden = sequence.extend_hidden(question)
    assert torch.equal(rows, Sequence(tiny.decoder, documents(tiny), 64).extend_all(question))
    assert hidden.shape == (4, 20, tiny.decoder.geometry.hidden_size)
    assert hidden.dtype == torch.float32
    for row, length in enumerate(DOCUMENT_LENGTHS):
        line = text(length, length) + question
        expected = tiny.expected_hidden(line)[length:]
        torch.testing.assert_close(hidden[row], expected, atol=1e-4, rtol=0)


def test_half_precision_computes_the_same_up_to_rounding(tiny: Any) -> None:
    question = text(20, seed=1)
    decoder = tiny.in_bfloat16()
    kvs = [document_kv(decoder, text(n, n)) for n in DOCUMENT_LENGTHS]
    rows = Sequence(decoder, kvs, 64).extend_all(question)
    _, hidden = Sequence(decoder, kvs, 64).extend_hidden(question)
    single = Sequence(decoder, kvs, 64)
    singles = torch.stack([single.extend([token]) for token in question], dim=1)
    assert rows.dtype == hidden.dtype == torch.float32
    for row, length in enumerate(DOCUMENT_LENGTHS):
        expected = tiny.expected(text(length, length) + question)[length:]
        for computed in (rows[row], singles[row]):
            assert (computed - expected).abs().mean() < 0.03


def test_packing_a_model_keeps_the_bits_of_bfloat16(tiny: Any) -> None:
    model = copy.deepcopy(tiny.reference).to(torch.bfloat16)
    linear_layers = [type(layer) for layer in model.modules()].count(torch.nn.Linear)
    tokens = torch.tensor([text(24, seed=16)])
    with torch.inference_mode():
        expected = model(input_ids=tokens).logits
        pack_linear_layers(model)
        packed = [type(layer) for layer in model.modules()].count(PackedLinear)
        assert packed == linear_layers > 0
        assert torch.equal(model(input_ids=tokens).logits, expected)


def test_the_hand_written_forward_is_used_where_there_is_one(
    tiny: Any, request: pytest.FixtureRequest
) -> None:
    assert tiny.written_out == (request.node.callspec.params["tiny"] in tiny.to_be_written_out)


def test_blocks_and_single_tokens_agree(tiny: Any) -> None:
    line = text(40, seed=3)
    block = Sequence(tiny.decoder, documents(tiny), 64).extend_all(line)
    single = Sequence(tiny.decoder, documents(tiny), 64)
    mixed = Sequence(tiny.decoder, documents(tiny), 64)
    singles = torch.stack([single.extend([token]) for token in line], dim=1)
    cuts = [0, 1, 3, 4, 11, 12, 29, 40]
    pieces = [mixed.extend_all(line[a:b]) for a, b in pairwise(cuts)]
    if tiny.written_out:
        assert torch.equal(singles, block)
        assert torch.equal(torch.cat(pieces, dim=1), block)
    else:
        torch.testing.assert_close(singles, block, atol=2e-5, rtol=0)


def test_a_row_does_not_depend_on_the_other_rows(tiny: Any) -> None:
    line = text(9, seed=4)
    together = Sequence(tiny.decoder, documents(tiny), 64).extend_all(line)
    for row, document in enumerate(documents(tiny)):
        alone = Sequence(tiny.decoder, [document], 64).extend_all(line)
        if tiny.written_out:
            assert torch.equal(alone[0], together[row])
        else:
            torch.testing.assert_close(alone[0], together[row], atol=2e-5, rtol=0)


def test_a_cut_back_sequence_equals_one_never_extended(tiny: Any) -> None:
    start, wrong, right = text(12, seed=5), text(7, seed=6), text(4, seed=7)
    sequence = Sequence(tiny.decoder, documents(tiny), 64)
    sequence.extend(start)
    sequence.extend(wrong)
    sequence.truncate(10)
    fresh = Sequence(tiny.decoder, documents(tiny), 64)
    fresh.extend(start[:10])
    if not tiny.written_out:
        # the same block shapes: elsewhere another shape may change the last bits
        fresh = Sequence(tiny.decoder, documents(tiny), 64)
        fresh.extend(start)
        fresh.truncate(10)
    assert sequence.length == fresh.length == 10
    assert torch.equal(sequence.extend_all(right), fresh.extend_all(right))


def test_a_preempted_extend_leaves_no_trace(tiny: Any) -> None:
    start, dead, right = text(12, seed=8), text(3, seed=9), text(3, seed=10)
    undisturbed = Sequence(tiny.decoder, documents(tiny), 64)
    undisturbed.extend(start)
    expected = undisturbed.extend_all(right)
    stopped = 0
    for checks in range(1, len(tiny.decoder.geometry.layers) + 1):
        sequence = Sequence(tiny.decoder, documents(tiny), 14)  # grows in the dead extend
        sequence.extend(start)
        with pytest.raises(Preempted):
            sequence.extend(dead, CountedPreemption(checks))
        stopped += 1
        assert sequence.length == len(start)
        assert torch.equal(sequence.extend_all(right), expected)
    assert stopped == len(tiny.decoder.geometry.layers)


def test_a_preemption_stops_forwards_until_it_is_cleared(tiny: Any) -> None:
    preemption = Preemption()
    sequence = Sequence(tiny.decoder, documents(tiny), 8)
    preemption.request()
    for _ in range(2):
        with pytest.raises(Preempted):
            sequence.extend([5], preemption)
    preemption.clear()
    sequence.extend([5], preemption)
    assert sequence.length == 1


def test_stored_documents_give_the_same_bits(tiny: Any) -> None:
    line = text(6, seed=11)
    fresh = documents(tiny)
    stored = [DocumentKV.from_arrays(document.to_arrays()) for document in fresh]
    assert torch.equal(
        Sequence(tiny.decoder, stored, 64).extend_all(line),
        Sequence(tiny.decoder, fresh, 64).extend_all(line),
    )


def test_a_long_block_is_cut_into_forwards(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    line = text(30, seed=13)
    whole = Sequence(tiny.decoder, documents(tiny), 64).extend_all(line)
    monkeypatch.setattr("dragonrt.backends.sequence._LARGEST_BLOCK", 28)
    cut = Sequence(tiny.decoder, documents(tiny), 64)
    torch.testing.assert_close(cut.extend_all(line), whole, atol=2e-5, rtol=0)
    cut.truncate(0)
    torch.testing.assert_close(cut.extend(line), whole[:, -1], atol=2e-5, rtol=0)


def test_input_that_does_not_fit_is_refused(tiny: Any) -> None:
    decoder = tiny.decoder
    sequence = Sequence(decoder, documents(tiny), 8)
    sequence.extend([3, 4])
    room = CONTEXT - max(DOCUMENT_LENGTHS) - 2
    for tokens, message in (
        ([], "no tokens"),
        ([VOCABULARY], "between 0 and 96"),
        ([-1], "between 0 and 96"),
        ([3] * (room + 1), "context of 160"),
    ):
        with pytest.raises(ModelError, match=message):
            sequence.extend(tokens)
    assert sequence.length == 2
    sequence.extend([3] * room)
    with pytest.raises(ModelError, match="context of 160"):
        sequence.extend([3])
    for length in (-1, CONTEXT):
        with pytest.raises(ModelError, match="cannot cut"):
            sequence.truncate(length)
    with pytest.raises(ModelError, match="at least one document"):
        Sequence(decoder, [], 8)
    with pytest.raises(ModelError, match="context of 160"):
        document_kv(decoder, [3] * (CONTEXT + 1))
