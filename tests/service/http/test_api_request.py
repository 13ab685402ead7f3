"""Bodies: what is known is taken or refused by its name, what is not is ignored with a warning."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dragonrt.modes.question import Question
from dragonrt.service.answer import Source
from dragonrt.service.http.api_request import ApiError, ApiRequest, json_object, read, warning
from dragonrt.service.http.application import EmbeddingsBody
from dragonrt.service.http.forms import FORMS
from dragonrt.service.view import sources_text, without_sources
from tests.service.conftest import ByteModel

DEFAULTS = ApiRequest(Question(max_tokens=64), 5, ("END",), True, 200)
Parse = Callable[[dict[str, Any], ApiRequest], ApiRequest]
HELLO = [{"role": "user", "content": "Hello?"}]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
NAMES = st.sampled_from(
    (
        *("messages", "input", "stop", "seed", "temperature", "top_p", "top_k", "min_p", "n"),
        *("tools", "stream", "stream_options", "include", "max_tokens", "max_completion_tokens"),
        *("max_output_tokens", "response_format", "sources_in_text", "logprobs"),
        *("top_logprobs", "text"),
    )
)


APIS: dict[str, tuple[Parse, dict[str, Any]]] = {
    "chat": (FORMS["/v1/chat/completions"].parse, {"messages": HELLO}),
    "response": (FORMS["/v1/responses"].parse, {"input": "Hello?"}),
    "ollama": (FORMS["/api/chat"].parse, {"messages": HELLO}),
}


def parsed(api: str, **fields: Any) -> ApiRequest:
    parse, asked = APIS[api]
    return parse({**asked, **fields}, DEFAULTS)


def chat(**fields: Any) -> ApiRequest:
    return parsed("chat", **fields)


@pytest.mark.parametrize("api", ["chat", "response"])
def test_given_fields_count_and_others_are_the_services(api: str) -> None:
    request = parsed(api)
    assert request.question == Question(prompt="Hello?", max_tokens=64)
    assert (request.seed, request.stops, request.body.stream) == (5, ("END",), None)
    assert request.sources_in_text
    request = parsed(api, seed=0, stop=["a", "b"], stream=True, temperature=2)
    assert (request.seed, request.stops, request.body.stream) == (0, ("END", "a", "b"), True)
    assert request.question.sampler.temperature == 2.0


@pytest.mark.parametrize(
    ("name", "neutral", "rejected"),
    [
        ("n", 1, 2),
        ("tool_choice", "none", "required"),
        ("tool_choice", "auto", {"type": "function", "function": {"name": "look"}}),
        ("function_call", None, {"name": "look"}),
        ("modalities", ["text"], ["text", "audio"]),
        ("user", "me", None),
    ],
)
def test_only_neutral_values_are_taken(name: str, neutral: Any, rejected: Any) -> None:
    assert chat(**{name: neutral}).warnings == []
    if rejected is not None:
        with pytest.raises(ApiError) as error:
            chat(**{name: rejected})
        assert (error.value.code, error.value.param) == ("unsupported_parameter", name)


@pytest.mark.parametrize(
    ("api", "fields", "warned"),
    [
        ("chat", {"tools": [{"type": "function"}]}, "tools: no tool is called"),
        ("chat", {"tools": []}, None),
        ("chat", {"presence_penalty": 0.6}, "presence_penalty: no effect here"),
        ("chat", {"presence_penalty": 0}, None),
        ("chat", {"logit_bias": {"5": 1}}, "logit_bias: no effect here"),
        ("chat", {"response_format": {"type": "text"}}, None),
        ("chat", {"response_format": {"type": "json_object"}}, "response_format: the form"),
        ("response", {"text": {"format": {"type": "json_schema"}}}, "text.format: the form"),
        ("response", {"include": ["reasoning.encrypted_content"]}, "ignored: include reasoning"),
        ("chat", {"audio": {"voice": "alloy"}}, "ignored: audio"),
        ("chat", {"previous_response_id": "resp_1"}, "ignored: previous_response_id"),
        ("response", {"n": 2}, "ignored: n"),
        ("ollama", {"options": {"num_ctx": 8192}}, "ignored: num_ctx"),
        ("ollama", {"format": "json", "think": False}, "format: the form"),
        ("ollama", {"format": "", "keep_alive": "5m"}, None),
    ],
)
def test_what_cannot_be_kept_is_said(api: str, fields: Any, warned: str | None) -> None:
    lines = parsed(api, **fields).warnings
    assert any(line.startswith(warned) for line in lines) if warned else lines == []


def test_values_that_ask_for_nothing_are_the_defaults() -> None:
    request = chat(seed=-1, top_k=-1, stop="")
    assert (request.seed, request.stops) == (None, ("END",))
    assert request.question == chat().question
    assert chat(stop=["", "x"]).stops == ("END", "x")
    assert chat(**json_object(b'{"max_tokens": 32.0}')).question.max_tokens == 32


def test_calls_and_results_of_tools_are_not_read() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = [
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "dark"}]},
        {"role": "developer", "content": "Be brief."},
    ]
    request = chat(messages=said)
    assert (request.question.prompt, request.question.history) == ("Who?", ())
    assert request.question.instructions == "Be brief."
    called = "messages[1].tool_calls: no tool is called"
    assert request.warnings == ["ignored: messages[2]", called]
    items = [
        {"role": "user", "content": "Who?"},
        {"type": "reasoning", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "dark"},
    ]
    request = parsed("response", input=items)
    assert request.question.prompt == "Who?"
    assert request.warnings == ["ignored: input[1], input[2], input[3]"]


@pytest.mark.parametrize(("name", "deaf"), [("smollm2", True), ("qwen", False)])
def test_instructions_that_no_one_follows_are_said(name: str, deaf: bool) -> None:
    model: Any = replace(ByteModel(), name=name)
    asked = parsed("response", instructions="Answer in French.").fitted(64, model)
    assert [name in line for line in asked.warnings] == [True] * deaf
    assert bool(asked.question.instructions) is not deaf
    assert parsed("response").fitted(64, model).warnings == []


TASK = (
    "### Task:\nGenerate a title.\n### Chat History:\n<chat_history>\nUSER: Who?\n</chat_history>"
)


def test_tasks_of_a_chat_page_read_no_document() -> None:
    request = chat(messages=[{"role": "user", "content": TASK}])
    assert (request.background, request.question.documents) == (True, 0)


@pytest.mark.parametrize(
    ("asked", "before"),
    [
        ("### Task:\nRespond to the user query.\n<context>\n", []),
        ("What is <chat_history>?", []),
        (f"{TASK}\nWho is meant?", []),
        (f"### Task:\nRespond to the query.\n<context>\n{TASK}\n</context>\nWho?", []),
        (TASK, [*HELLO, {"role": "assistant", "content": "Hi."}]),
        (TASK, HELLO),
    ],
)
def test_what_people_ask_is_no_task_of_a_page(asked: str, before: list[Any]) -> None:
    assert not chat(messages=[*before, {"role": "user", "content": asked}]).background


def message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x", **fields}]}


@pytest.mark.parametrize(
    ("api", "fields", "param"),
    [
        ("chat", {"temperature": -1}, "temperature"),
        ("chat", {"temperature": "hot"}, "temperature"),
        ("chat", {"temperature": True}, "temperature"),
        ("chat", {"top_p": 1.5}, "top_p"),
        ("chat", {"seed": 2**64}, "seed"),
        ("chat", {"max_tokens": 0}, "max_tokens"),
        ("chat", {"max_tokens": -3}, "max_tokens"),
        ("chat", {"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ("chat", {"top_k": -2}, "top_k"),
        ("chat", {"stop": ["x"] * 17}, "stop"),
        ("chat", {"stop": 3}, "stop"),
        ("chat", {"stream": "yes"}, "stream"),
        ("chat", {"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ("chat", {"messages": "Hello?"}, "messages"),
        ("chat", {"messages": ["Hello?"]}, "messages[0]"),
        ("chat", {"messages": []}, "messages"),
        ("chat", {"messages": None}, "messages"),
        ("chat", {"messages": [*HELLO, {"role": "assistant", "content": "Hi."}]}, "messages"),
        ("chat", message(role="pope"), "messages[0].role"),
        ("chat", message(role=None), "messages[0].role"),
        ("chat", message(content=5), "messages[0].content"),
        ("chat", message(content=None), "messages"),
        ("chat", message(content="b" * 10**7), "messages[0].content"),
        ("response", {"input": "b" * 10**7}, "input"),
        ("chat", message(content=[{"type": "image_url"}]), "messages[0].content[0].type"),
        ("ollama", {"messages": [{**HELLO[0], "images": ["aGk="]}]}, "messages[0].images"),
        ("ollama", {"suffix": "end"}, "suffix"),
        ("ollama", {"options": 3}, "options"),
        ("chat", {"top_logprobs": 2}, "logprobs"),
        ("chat", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("response", {"previous_response_id": "resp_1"}, "previous_response_id"),
        ("response", {"background": True}, "background"),
        ("response", {"instructions": 3}, "instructions"),
        ("response", {"input": " "}, "input"),
        ("response", {"input": None}, "input"),
        ("response", {"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_what_is_wrong_is_named(api: str, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as error:
        parsed(api, **fields)
    assert (error.value.status, error.value.param) == (400, param)


def test_a_conversation_becomes_turns() -> None:
    roles = ("system", "user", "user", "assistant", "assistant", "user")
    texts = ("Be brief.", "one", "two", "first", "more", "three")
    said = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    for api, field in ("chat", "messages"), ("response", "input"):
        request = parsed(api, **{field: said})
        question = request.question
        assert question.history == (("one\ntwo", "first\nmore"),)
        assert (question.prompt, question.instructions) == ("three", "Be brief.")
        assert request.asked_in == f"{field}[5].content"


def test_an_api_has_words_of_its_own() -> None:
    parts = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "H"}]}]
    assert parsed("response", input=parts).question.prompt == "H"
    assert parsed("response", include=["dragonrt.trace"]).traced
    assert parsed("response", instructions="Be brief.").question.instructions == "Be brief."


@pytest.mark.parametrize(
    ("asked", "tokens", "warned"),
    [(None, 64, False), (9, 9, False), (-1, 200, False), (5000, 200, True), (10**30, 200, True)],
)
def test_the_longest_answer_has_room(asked: int | None, tokens: int, warned: bool) -> None:
    for api, field in (
        ("chat", "max_tokens"),
        ("chat", "max_completion_tokens"),
        ("response", "max_output_tokens"),
        ("ollama", "num_predict"),
    ):
        request = parsed(api, **{field: asked})
        assert request.question.max_tokens == tokens
        assert request.warnings == [f"{field}: 200 is the most"] * warned


def test_what_is_unknown_is_ignored_and_named_in_a_header() -> None:
    assert chat(user="me", n=1).warnings == []
    unknown = {"store": True, "reasoning_effort": "low", "repeat_penalty": 1.1, "store2": None}
    nested = [{"role": "user", "content": "Hello?", "cache_control": {}}]
    warned = warning(chat(**unknown, messages=nested).warnings)
    named = "messages[0].cache_control, store, reasoning_effort, repeat_penalty"
    assert warned == {"Warning": f'299 - "ignored: {named}"'}
    assert parsed("response", reasoning={}).warnings == ["ignored: reasoning"]


@given(st.dictionaries(st.text(), st.just(1), max_size=40))
def test_the_warning_is_a_header_whatever_the_names_are(fields: dict[str, Any]) -> None:
    for value in warning(chat(**{f"?{name}": 1 for name in fields}).warnings).values():
        assert value.isascii()
        assert value.isprintable()
        assert len(value) < 16_000


def test_unknown_probabilities_are_rejected() -> None:
    defaults = replace(DEFAULTS, no_probabilities_because="the cloud decides")
    for api, field, value in ("chat", "logprobs", True), ("response", "top_logprobs", 1):
        assert parsed(api, **{field: value}).question.top_logprobs is not None
        parse, asked = APIS[api]
        with pytest.raises(ApiError) as error:
            parse({**asked, field: value}, defaults)
        assert error.value.param == field


@settings(max_examples=60)
@given(st.dictionaries(NAMES | st.text(max_size=5), JSON, max_size=4), st.booleans())
def test_any_body_makes_a_request_or_an_api_error(fields: dict[str, Any], whole: bool) -> None:
    for parse, asked in APIS.values():
        with suppress(ApiError):
            assert parse({**fields, **(asked if whole else {})}, DEFAULTS).question.prompt


@pytest.mark.parametrize("dimensions", ["7", 0, 1.5, True, [7]])
def test_dimensions_are_an_integer(dimensions: Any) -> None:
    with pytest.raises(ApiError) as error:
        read({"input": "x", "dimensions": dimensions}, EmbeddingsBody)
    assert (error.value.status, error.value.param) == (400, "dimensions")
    assert read({"input": "x", "dimensions": 7}, EmbeddingsBody)[0].dimensions == 7


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"3", b'{"a": "\\ud800x"}', b'{"\x90": 1}']
)
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(ApiError) as error:
        json_object(data)
    assert error.value.code == "invalid_json"


@given(st.text(), st.lists(st.text(max_size=9), max_size=3), st.booleans())
@example("", ["\n"], False)
def test_added_sources_can_be_removed_again(text: str, names: list[str], lost: bool) -> None:
    sources = [Source("device", f"{name}.md", "T", 0.5, 0.0, "") for name in names]
    behind = sources_text(sources, ["the cloud is lost"] * lost)
    assert bool(behind) == bool(sources or lost)
    assert without_sources(text + behind) == text
