"""The real MiniLM in llama.cpp, and tiny decoders."""

import json
import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, Popen

import gguf
import numpy as np
import pytest

from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.backends.llama_cpp.gguf_file import finish
from retrieval import Embedder, RetrievalError

TEXTS = [
    "The ferry leaves at nine.",
    "",
    "Ünïcödé, 漢字 and CAPITALS!",
    "\ud800 and \0",
    "ferry " * 40,
]
LETTERS = ("<unk>", "<s>", "</s>", "\u2581", "a", "b")


@pytest.fixture(scope="module")
def minilm() -> Embedder:
    return load_embedder()


@pytest.mark.slow
def test_embeddings_are_unit_vectors_and_know_meaning(minilm: Embedder) -> None:
    texts = ["The ferry leaves at nine.", "My cat sleeps all day.", "Boats depart in the morning."]
    vectors = minilm.encode(texts)
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    cosines = vectors @ minilm.encode_question("When does the ship depart?")
    assert min(cosines[0], cosines[2]) > cosines[1] + 0.3
    assert minilm.encode([]).shape == (0, 384)


@pytest.mark.slow
def test_it_is_interchangeable_with_sentence_transformers(minilm: Embedder) -> None:
    pytest.importorskip("sentence_transformers")
    theirs, texts = Embedder.load(), [*TEXTS[:3], "word " * 300]
    assert (minilm.encode(texts) * theirs.encode(texts)).sum(axis=1).min() > 0.99999
    assert minilm.fingerprint == theirs.fingerprint


@pytest.mark.slow
def test_a_text_has_the_same_bits_after_any_other_in_any_thread(minilm: Embedder) -> None:
    together = minilm.encode(TEXTS)
    alone = np.concatenate([load_embedder(threads=2).encode([text]) for text in TEXTS[::-1]])
    assert together.tobytes() == alone[::-1].tobytes()
    asked = [minilm.encode_question(text) for text in TEXTS]
    assert together.tobytes() == np.stack(asked).tobytes()
    embedders = [minilm, minilm, load_embedder(threads=1)]
    with ThreadPoolExecutor(3) as pool:
        for vectors in pool.map(lambda embedder: embedder.encode(TEXTS), embedders):
            assert vectors.tobytes() == together.tobytes()


@pytest.mark.slow
def test_a_text_is_cut_to_what_the_model_was_trained_with(minilm: Embedder) -> None:
    vectors = minilm.encode([f"{'ferry ' * 254}{end}" for end in ("", "museum", "museum closed")])
    assert len({vector.tobytes() for vector in vectors}) == 1


def decoder(path: Path, pooling: gguf.PoolingType | None, *, framed: bool) -> Path:
    """Write a random Llama of one layer, 32 dimensions and a context of 8 tokens."""
    writer, draw = gguf.GGUFWriter(path, "llama"), np.random.default_rng(0).standard_normal
    writer.add_block_count(1)
    writer.add_context_length(8)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(LETTERS)
    writer.add_token_scores([0.0] * len(LETTERS))
    writer.add_token_types([gguf.TokenType.NORMAL] * len(LETTERS))
    writer.add_add_bos_token(framed)
    writer.add_add_eos_token(framed)
    shapes = {"token_embd": (len(LETTERS), 32), "output_norm": (32,)}
    shapes |= {f"blk.0.{name}_norm": (32,) for name in ("attn", "ffn")}
    names = [*(f"attn_{part}" for part in ("q", "k", "v", "output")), *("ffn_gate", "ffn_up")]
    shapes |= {f"blk.0.{name}": (32, 32) for name in (*names, "ffn_down")}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", 0.2 * draw(shape, np.float32))
    finish(writer)
    return path


@pytest.mark.parametrize("framed", [True, False])
def test_a_decoder_may_embed(tmp_path: Path, framed: bool) -> None:
    path = decoder(tmp_path / "a.gguf", gguf.PoolingType.LAST, framed=framed)
    embedder = load_embedder(str(path))
    texts = ["ab", "", "bb", "aaaaaaaa", "aaaaaaaaa"]
    vectors = embedder.encode(texts)
    alone = [embedder.encode([text])[0] for text in texts]
    assert vectors.tobytes() == np.stack(alone).tobytes()
    assert np.any(vectors[1]) == framed
    assert np.any(vectors[0] != vectors[2])
    assert vectors[3].tobytes() == vectors[4].tobytes()
    assert load_embedder(str(path.rename(tmp_path / "b.gguf"))).fingerprint == embedder.fingerprint


def test_what_is_no_embedding_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("The ferry leaves at nine.")
    decoder(tmp_path / "generative.gguf", None, framed=True)
    for name in ("missing.gguf", "text.gguf", "generative.gguf"):
        with pytest.raises(RetrievalError) as caught:
            load_embedder(str(tmp_path / name))
        assert "\n" not in str(caught.value)


PROGRAM = """
import json, sys
from pathlib import Path
from dragonrt.backends.llama_cpp.embedder import load_embedder
from retrieval import Index, Retriever

where, embedder = Path(sys.argv[1]), load_embedder(threads=1)
(where / "a.txt").write_text("The ferry leaves at nine.")
Index.update(where / "index", where / "a.txt", embedder)
(hit,) = Retriever(Index.open(where / "index"), embedder).retrieve("When does the ferry leave?", 1)
print(json.dumps([hit.score, sorted(sys.modules)]))
"""


@pytest.mark.slow
def test_two_processes_make_the_file_once_and_without_torch(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_DATA_HOME": str(tmp_path)}
    processes = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / name)]
        processes.append(Popen(command, stdout=PIPE, text=True, env=environment))
    outputs = [process.communicate()[0] for process in processes]
    (one, modules), (two, _) = map(json.loads, outputs)
    assert one == two
    assert not {"torch", "transformers", "sentence_transformers"} & set(modules)
    files = list((tmp_path / "dragonrt" / "models").iterdir())
    assert sorted(file.suffix for file in files) == [".gguf", ".lock"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_file_that_cannot_be_made_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dragonrt").write_text("no directory")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(RetrievalError) as caught:
        load_embedder()
    assert "\n" not in str(caught.value)
