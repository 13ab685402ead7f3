"""The same bits in any block, beside any rows, in any forward that others share."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from dragonrt.backends import ModelError, Preempted, Preemption, Sequence
from dragonrt.backends.decoder import Decoder, Output
from dragonrt.backends.sequence import Extension, document_kv, extend_together
from dragonrt.backends.torch_.architectures import transformer
from dragonrt.backends.torch_.int4 import can_multiply_int4
from dragonrt.backends.torch_.int8 import can_quantize
from dragonrt.backends.torch_.linear import Linear, has_fast_bfloat16, is_row_invariant
from dragonrt.backends.torch_.weights import Format, between_rounded_weights, floats, int4, int8

VOCABULARY = 97
TOKENS = 16
LENGTHS = (0, 37, 5, 61)
CPU = torch.device("cpu")


def text(length: int, seed: int) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(2, VOCABULARY) for _ in range(length)]


FORMATS: dict[str, Callable[[], Format]] = {
    "float32": lambda: floats(torch.float32),
    "bfloat16": lambda: floats(torch.bfloat16),
    "int8": int8,
    "int4": int4,
}


@pytest.fixture(params=list(FORMATS))
def exact(tiny: Any, request: pytest.FixtureRequest) -> Decoder[Any]:
    """Every architecture that is written out, in all types."""
    possible = {"int8": can_quantize(), "int4": can_multiply_int4(between_rounded_weights())}
    form = FORMATS[request.param]()
    promised = tiny.written_out and is_row_invariant(form.dtype, CPU)
    if not promised or not possible.get(request.param, True):
        pytest.skip("nothing is promised of this type here, or of this architecture")
    decoder: Decoder[Any] = tiny.in_format(form)
    assert decoder.exact_blocks
    return decoder


def said(output: Any) -> Output:
    assert isinstance(output, Output), output
    return output


def same(one: Output, other: Output) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_rows_and_block_sizes_from_1_to_16_give_the_bits_of_single_steps(
    exact: Decoder[Any],
) -> None:
    line = text(TOKENS, seed=1)
    documents = [document_kv(exact, text(length, length)) for length in LENGTHS]
    alone = []
    for document in documents:
        sequence = Sequence(exact, [document], 64)
        steps = [sequence.extend_hidden([token]) for token in line]
        alone.append(Output(*(torch.cat(parts, dim=1) for parts in zip(*steps, strict=True))))
    for rows in range(1, 17):
        chosen = [(rows + row) % len(documents) for row in range(rows)]
        for size in {rows, 17 - rows}:
            sequence = Sequence(exact, [documents[number] for number in chosen], 64)
            blocks = [
                sequence.extend_hidden(line[start : start + size])
                for start in range(0, TOKENS, size)
            ]
            for kind, wanted in enumerate(zip(*alone, strict=True)):
                got = torch.cat([block[kind] for block in blocks], dim=1)
                expected = torch.cat([wanted[number] for number in chosen])
                assert torch.equal(got, expected), (rows, size)


def test_threads_change_no_bit(exact: Decoder[Any]) -> None:
    line, before = text(4, seed=1), torch.get_num_threads()

    def read(threads: int, size: int) -> Output:
        torch.set_num_threads(threads)
        sequence = Sequence(exact, [document_kv(exact, text(37, 37))], 64)
        blocks = [sequence.extend_hidden(line[start : start + size]) for start in range(0, 4, size)]
        return Output(*(torch.cat(parts, dim=1) for parts in zip(*blocks, strict=True)))

    try:
        alone = read(1, 1)
        assert same(read(2, 1), alone)
        assert same(read(2, 4), alone)
    finally:
        torch.set_num_threads(before)


def shared_by(decoder: Decoder[Any]) -> list[Extension]:
    """Sessions of one to three documents that want a token, a block or a question read."""
    extensions = []
    for number, (lengths, tokens, every) in enumerate(
        [((0,), 1, True), ((37, 5), 1, True), ((61, 0, 5), 7, True), ((5, 61), 30, False)]
    ):
        documents = [document_kv(decoder, text(length, length)) for length in lengths]
        sequence = Sequence(decoder, documents, 16)
        sequence.extend(text(3 + number, seed=number))
        prompt = tokens == 30
        extensions.append(Extension(sequence, text(tokens, seed=10 + number), every, prompt=prompt))
    return extensions


def test_who_shares_the_forward_changes_no_bit(exact: Decoder[Any]) -> None:
    alone = [said(extend_together([extension])[0]) for extension in shared_by(exact)]
    together = extend_together(shared_by(exact))
    assert all(same(said(got), wanted) for got, wanted in zip(together, alone, strict=True))
    others = [*reversed(shared_by(exact)), *shared_by(exact)]
    for got, wanted in zip(extend_together(others), [*reversed(alone), *alone], strict=True):
        assert same(said(got), wanted)


class LatePreemption(Preemption):
    """Requested from its n-th reading on."""

    def __init__(self, readings: int) -> None:
        super().__init__()
        self._left = readings

    @property
    def requested(self) -> bool:
        self._left -= 1
        return self._left <= 0


def test_one_that_is_preempted_or_wrong_leaves_the_others_alone(tiny: Any) -> None:
    decoder = tiny.decoder
    alone = [said(extend_together([extension])[0]) for extension in shared_by(decoder)]
    for readings in range(1, len(decoder.geometry.layers) + 1):
        extensions = shared_by(decoder)
        block, question = extensions[1], extensions[2]
        extensions[1] = Extension(block.sequence, [VOCABULARY])
        extensions[2] = Extension(
            question.sequence, question.tokens, preemption=LatePreemption(readings)
        )
        results = extend_together(extensions)
        assert isinstance(results[1], ModelError)
        assert isinstance(results[2], Preempted)
        assert (block.sequence.length, question.sequence.length) == (4, 5)
        for number in (0, 3):
            torch.testing.assert_close(said(results[number]), alone[number], atol=2e-5, rtol=0)
            assert same(said(results[number]), alone[number]) or not decoder.exact_blocks
        again = extend_together([Extension(question.sequence, question.tokens)])
        torch.testing.assert_close(said(again[0]), alone[2], atol=2e-5, rtol=0)


def test_what_cannot_be_extended_together_is_refused(tiny: Any) -> None:
    one = Sequence(tiny.decoder, [document_kv(tiny.decoder, [])], 8)
    with pytest.raises(ValueError, match="twice"):
        extend_together([Extension(one, [5]), Extension(one, [6])])
    other = tiny.in_bfloat16()
    stranger = Sequence(other, [document_kv(other, [])], 8)
    with pytest.raises(ValueError, match="different models"):
        extend_together([Extension(one, [5]), Extension(stranger, [6])])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("outputs", "inputs"), [(3072, 8192), (4096, 4096), (896, 4864)])
def test_products_of_real_sizes_do_not_depend_on_rows_or_threads(
    outputs: int, inputs: int, dtype: torch.dtype
) -> None:
    if not is_row_invariant(dtype, CPU):
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


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_bit_depends_on_the_number_of_threads(dtype: torch.dtype) -> None:
    if not is_row_invariant(dtype, CPU):
        pytest.skip("nothing is promised of this type here")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=20_000,  # so much that threads share the work
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=700,
    )
    model: Any = LlamaForCausalLM(config)
    decoder = transformer(model.eval().to(dtype))
    assert decoder is not None
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            documents = [document_kv(decoder, text(length, length)) for length in (0, 600)]
            sequence = Sequence(decoder, documents, 64)
            sequence.extend(text(20, seed=1))
            found.append(sequence.extend_hidden(text(3, seed=2)))
    finally:
        torch.set_num_threads(before)
    assert same(found[0], found[1])
    assert same(found[0], found[2])


def test_types_of_which_nothing_is_known_are_not_exact() -> None:
    assert is_row_invariant(torch.float32, CPU)
    assert is_row_invariant(torch.bfloat16, CPU) == has_fast_bfloat16()
    assert not is_row_invariant(torch.float16, CPU)
    assert not is_row_invariant(torch.float32, torch.device("cuda"))
