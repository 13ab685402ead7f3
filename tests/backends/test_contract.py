"""Every architecture keeps the contract of a backend, and says what transformers says."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from dragonrt.backends.transformers_.checkpoint import load_model
from dragonrt.side import Precision
from dragonrt.testing.backend_contract import CHECKS, LENGTHS, Subject, numbers
from tests.tiny_models import FAMILIES

Case = tuple[Path, Subject]


@pytest.fixture(
    scope="module", params=[*((name, "float32") for name in FAMILIES), ("llama", "bfloat16")]
)
def case(request: pytest.FixtureRequest, directory: Callable[[str], Path]) -> Case:
    family, dtype = request.param
    path = directory(family)
    return path, Subject(load_model(str(path), "cpu", cast(Precision, dtype)))


@pytest.mark.parametrize("check", CHECKS)
def test_contract(case: Case, check: Callable[[Subject], None]) -> None:
    check(case[1])


def test_every_row_is_its_text_alone(case: Case) -> None:
    path, on = case
    reference = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    line, rows = on.text(21, 1), on.opened()
    found = numbers([*rows.extend_all(line[:20]), rows.extend(line[20:])])
    for row, length in enumerate(LENGTHS):
        tokens = torch.tensor([on.text(length, length) + line])
        with torch.inference_mode():
            said = reference(tokens, output_hidden_states=True)
        wanted = torch.cat([said.logits[0].log_softmax(-1), said.hidden_states[-1][0]], 1)[length:]
        error = np.abs(found[:, row] - wanted.numpy())
        assert error.mean() < 0.03
        if on.info.dtype == "float32":
            assert error.max() < 1e-4
