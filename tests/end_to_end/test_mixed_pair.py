"""A device whose model is a directory, run by transformers, and a cloud with the same as a GGUF."""

from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import Address
from dragonrt.service.cloud_process import cloud_process
from tests.tiny_models import saved, tiny, written_file

from .conftest import BOTH, connected_device, counts

SIZES = {"vocab_size": 258, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
"""Rows of whole blocks of 32; as many tokens as the tokenizer has."""


@pytest.mark.slow
async def test_a_directory_and_a_file_answer_together(tmp_path: Path) -> None:
    directory, file = saved(tiny("llama", **SIZES), tmp_path / "model"), tmp_path / "model.gguf"
    written_file(directory, file)
    model = LanguageModel.load(directory, "cpu", "float32")
    with cloud_process(model=str(file)) as cloud:
        address = Address("127.0.0.1", cloud.wait_ready())
        async with connected_device(model, None, address, BOTH) as device:
            reply = await device.ask("When?", Question(max_tokens=12, stop_tokens=()))
    assert len(reply.decoded.tokens) == 12
    assert counts(reply).divergences == 0
