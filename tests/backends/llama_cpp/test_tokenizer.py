"""The tokenizer of a file, beside transformers' over the same vocabulary."""

from typing import Any

import pytest
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

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
def test_tokens_and_texts_equal_those_of_transformers(
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


class Templated:
    """A model of the package, whose file has this chat template."""

    def __init__(self, template: str) -> None:
        self._model = LlamaModel(load_library(), bundled.model_path("dragon-small"))
        self._template = template

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def metadata(self, key: str) -> str:
        is_template = key == "tokenizer.chat_template"
        return self._template if is_template else self._model.metadata(key)


def templated(template: str) -> LlamaTokenizer:
    model: Any = Templated(template)
    return LlamaTokenizer(model)


MESSAGES = [{"role": "user", "content": "Hé <hi>"}, {"role": "assistant", "content": "Yes."}]


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{% if m.role == 'assistant' %}\n  {%- generation -%}\n"
        "{{ m.content }}{% set done = true %}\n{% endgeneration %}{{ done is defined }}\n"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}",
        "{{ messages | tojson(separators=(',', ':'), sort_keys=true) }}"
        "{{ messages | tojson(true) }}",
        "{% if tools is not none or documents is not none %}{{ tools[0] }}{% endif %}",
        "{% set n = namespace(a=1) %}{% set n.a = n.a + 1 %}{{ dict(b=n.a) | tojson(indent=2) }}",
    ],
    ids=["generation", "tojson", "tools", "namespace"],
)
def test_what_templates_use_is_rendered_as_by_transformers(template: str) -> None:
    rendered: Any = render_jinja_template([MESSAGES], chat_template=template)
    assert templated(template).chat(MESSAGES) == rendered[0][0]


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles\nmust alternate') }}",
        "{{ messages[0].content + 1 }}",
        "{{ 1 // 0 }}",
        "{{ messages | tojson(separators=1) }}",
    ],
)
def test_an_error_inside_a_template_is_one_line(template: str) -> None:
    with pytest.raises(ModelError) as refused:
        templated(template).chat(MESSAGES)
    assert "\n" not in str(refused.value)


def test_a_template_that_cannot_be_parsed_is_one_line() -> None:
    with pytest.raises(ModelError) as refused:
        templated("{% generation %}\nwithout an end")
    assert "\n" not in str(refused.value)
