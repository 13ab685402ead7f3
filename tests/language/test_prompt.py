"""Prompts in two parts that join to what the model was trained on."""

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from dragonrt import bundled
from dragonrt.language.prompt import ChatPrompt, PlainPrompt, prompt_format

CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return PreTrainedTokenizerFast.from_pretrained(bundled.model_path("dragon-small"))


def test_the_plain_form_is_the_one_of_training(tokenizer: Any) -> None:
    prompt = prompt_format(tokenizer)
    assert prompt == PlainPrompt()
    text = prompt.document_text("Notes", "Tea at five.") + prompt.question_text(
        [("Who comes?", "Ada")], "When is tea?"
    )
    assert text == (
        "Document: Tea at five.\n\nQuestion: Who comes?\nAnswer: Ada\n"
        "Question: When is tea?\nAnswer:"
    )
    assert prompt.stops == ("\n",)
    assert prompt.question_text([], "When?", "Be brief.").startswith("Be brief.\n\nQuestion: When?")


def test_a_tokenizer_that_starts_texts_starts_the_document() -> None:
    class Starting:
        chat_template = None
        bos_token, bos_token_id = "<s>", 1

        def encode(self, text: str) -> list[int]:
            return [1]

    prompt = prompt_format(Starting())
    assert prompt.document_text("", "Tea.") == "<s>Document: Tea.\n\n"
    assert not prompt.question_text([], "When?").startswith("<s>")


def test_a_chat_template_is_split_behind_the_document(tokenizer: Any) -> None:
    tokenizer.chat_template = CHAT
    prompt = prompt_format(tokenizer)
    assert isinstance(prompt, ChatPrompt)
    assert prompt.stops == ()
    start = prompt.document_text("Notes", "  Tea at five.")
    assert start == "<|endoftext|><user>Document: Notes\n  Tea at five."
    assert prompt.document_text("", "Tea.").endswith("Document: Tea.")
    rest = prompt.question_text([("Who comes?", "Ada")], "When is tea?")
    assert rest == (
        "\n\nAnswer from the document.\n\nWho comes?</><assistant>Ada</>"
        "<user>When is tea?</><assistant>"
    )
    told = prompt.question_text([], "When is tea?", "Be brief.")
    assert told.startswith("\n\nAnswer from the document.\n\nBe brief.\n\nWhen is tea?</>")
