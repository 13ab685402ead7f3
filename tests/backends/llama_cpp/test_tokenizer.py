"""The tokenizer of a file, beside transformers' over the same vocabulary."""

import pytest
from transformers import AutoTokenizer

from dragonrt import bundled
from dragonrt.backends.backend import vocabulary_fingerprint
from dragonrt.backends.llama_cpp.library import LlamaModel, load_library
from dragonrt.backends.llama_cpp.tokenizer import LlamaTokenizer
from dragonrt.backends.transformers_.backend import TransformersTokenizer
from dragonrt.errors import ModelError

TEXTS = (
    "",
    "When is the boiler serviced?",
    "Grüße, 12345 naïve\n\n\tcafé  — 日本語 🙂",
    "<|im_start|>user\nIt's 9,990.<|im_end|>\n",
)


@pytest.fixture(scope="module")
def tokenizer() -> LlamaTokenizer:
    file = bundled.smollm2_file() or pytest.skip(f"{bundled.SMOLLM2_WHEEL} is not installed")
    return LlamaTokenizer(LlamaModel(load_library(), file))


@pytest.fixture(scope="module")
def reference() -> TransformersTokenizer:
    file = bundled.smollm2_file() or pytest.skip(f"{bundled.SMOLLM2_WHEEL} is not installed")
    return TransformersTokenizer(AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name))


@pytest.mark.parametrize("text", TEXTS)
def test_texts_have_the_tokens_and_tokens_the_text_of_transformers(
    tokenizer: LlamaTokenizer, reference: TransformersTokenizer, text: str
) -> None:
    tokens = tokenizer.encode(text)
    assert tokens == reference.encode(text)
    assert tokenizer.decode(tokens) == reference.decode(tokens)


def test_the_same_vocabulary_has_the_same_fingerprint(
    tokenizer: LlamaTokenizer, reference: TransformersTokenizer
) -> None:
    assert tokenizer.fingerprint == reference.fingerprint
    toy = LlamaTokenizer(LlamaModel(load_library(), bundled.model_path("dragon-small")))
    assert toy.fingerprint != tokenizer.fingerprint


def test_the_same_ids_of_another_kind_differ() -> None:
    kinds = ("byte-level", "sentencepiece")
    assert len({vocabulary_fingerprint(kind, {"a": 0}) for kind in kinds}) == 2


def test_half_a_character_is_replaced(tokenizer: LlamaTokenizer) -> None:
    (*_, last) = tokenizer.encode("🙂")
    assert set(tokenizer.decode([last])) == {"\ufffd"}


def test_messages_become_the_text_of_transformers(
    tokenizer: LlamaTokenizer, reference: TransformersTokenizer
) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert tokenizer.is_chat
    assert tokenizer.chat(messages) == reference.chat(messages)


def test_a_model_without_a_template_refuses_messages() -> None:
    toy = LlamaTokenizer(LlamaModel(load_library(), bundled.model_path("dragon-small")))
    assert not toy.is_chat
    with pytest.raises(ModelError):
        toy.chat([{"role": "user", "content": "Hi"}])
