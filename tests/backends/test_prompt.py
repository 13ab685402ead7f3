"""Prompts in two parts that join to what the model was trained on."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dragonrt.backends.prompt import CHAT as CHAT_PROMPT
from dragonrt.backends.prompt import TRAINED, ChatPrompt, PlainPrompt, PromptTemplate, prompt_format
from dragonrt.backends.transformers_.backend import TransformersTokenizer
from dragonrt.errors import ModelError
from tests import tiny_models

CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


TEMPLATE = PromptTemplate("Read: {document}\n\nAsked: {question}", system="Be right.")


@pytest.fixture
def tokenizer() -> Any:
    return copy.deepcopy(tiny_models.tokenizer())


def test_the_plain_form_shows_an_untrained_model_an_example(tokenizer: Any) -> None:
    prompt = prompt_format(TransformersTokenizer(tokenizer))
    assert prompt == PlainPrompt()
    example, document = prompt.document_text("Notes", "Tea at five.").split("\n\n")
    assert document + prompt.question_text([], "When is tea?") == (
        "Document: Tea at five.\nQuestion: When is tea?\nAnswer:"
    )
    refused = f"Answer:{prompt.template.refusal}"
    assert example.endswith(refused)


def test_the_plain_form_of_the_toys_is_the_one_of_their_training(tokenizer: Any) -> None:
    prompt = prompt_format(TransformersTokenizer(tokenizer), TRAINED["dragon-small"])
    text = prompt.document_text("Notes", "Tea at five.") + prompt.question_text(
        [("Who comes?", "Ada")], "When is tea?"
    )
    assert text == (
        "Document: Tea at five.\n\nQuestion: Who comes?\nAnswer: Ada\n"
        "Question: When is tea?\nAnswer:"
    )
    assert prompt.question_text([], "When?", "Be brief.").startswith("Be brief.\n\nQuestion: When?")


def test_a_tokenizer_that_starts_texts_starts_the_document(tokenizer: Any) -> None:
    wrapped = TransformersTokenizer(tokenizer)
    wrapped.start = "<s>"
    prompt = prompt_format(wrapped, TRAINED["dragon-small"])
    assert prompt.document_text("", "Tea.") == "<s>Document: Tea.\n\n"
    assert not prompt.question_text([], "When?").startswith("<s>")


def test_a_chat_template_is_split_behind_the_document(tokenizer: Any) -> None:
    tokenizer.chat_template = CHAT
    prompt = prompt_format(TransformersTokenizer(tokenizer), TEMPLATE)
    assert isinstance(prompt, ChatPrompt)
    start = prompt.document_text("Notes", "  Tea at five.")
    assert start == "<|endoftext|><system>Be right.</><user>Read: Notes\n  Tea at five.\n\nAsked:"
    rest = prompt.question_text([("Who comes?", "Ada")], "When is tea?")
    assert rest == " Who comes?</><assistant>Ada</><user>Asked: When is tea?</><assistant>"
    told = prompt.question_text([], "When is tea?", "Be brief.")
    assert told == " Be brief.\n\nWhen is tea?</><assistant>"


def test_the_title_is_omitted_if_the_text_begins_with_it(tokenizer: Any) -> None:
    tokenizer.chat_template = CHAT
    prompt = prompt_format(TransformersTokenizer(tokenizer), TEMPLATE)
    for title, text in (("", "Tea."), ("Tea at five", "Tea  at five."), ("Tea at…", "Tea at five")):
        assert prompt.document_text(title, text).endswith(f"Read: {text}\n\nAsked:")


def test_without_system_messages_the_first_question_has_it(tokenizer: Any) -> None:
    tokenizer.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('none') }}{% endif %}" + CHAT
    )
    prompt = prompt_format(TransformersTokenizer(tokenizer), TEMPLATE)
    start = prompt.document_text("", "Tea.")
    assert start == "<|endoftext|><user>Be right.\n\nRead: Tea.\n\nAsked:"


def test_only_untrained_chat_models_are_asked_to_refuse() -> None:
    trained, other = TRAINED["dragonrt"], CHAT_PROMPT
    assert other.user.startswith(trained.user)
    assert other.system == f"{trained.system} {other.system.removeprefix(trained.system).strip()}"
    assert other.refusal in other.system
    assert other.refusal not in trained.system


def test_what_a_document_says_is_never_taken_for_the_template(tokenizer: Any) -> None:
    text = "Use {question} and {document}."
    assert text in PlainPrompt().document_text("", text)
    assert PlainPrompt().question_text([], text).count(text) == 1
    assert ChatPrompt(TransformersTokenizer(tokenizer)).template.refusal


def test_a_template_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "prompt.toml"
    file.write_text(
        'system = "Be right."\nuser = "Read: {document}\\n\\nAsked: {question}"\nstops = ["\\n"]'
    )
    read = PromptTemplate.read(file)
    assert read == replace(TEMPLATE, stops=("\n",))
    assert not read.refusal


@pytest.mark.parametrize(
    "text",
    [
        *("user = 1", "not toml", 'user = "{document}"', 'user = "{question} {document}"', None),
        *(f'user = "{{document}} {more} {{question}}"' for more in ("{document}", "{question}")),
        *(f'{more}\nuser = "{{document}} {{question}}"' for more in ('other = "x"', "stops = [1]")),
    ],
)
def test_what_is_no_template_is_refused(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "prompt.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ModelError):
        PromptTemplate.read(file)
