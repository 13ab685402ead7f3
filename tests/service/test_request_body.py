"""Bodies: what is known is taken or refused by its name, what is not is ignored with a warning."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonrt.modes.question import Question
from dragonrt.service.http.api_errors import ApiError
from dragonrt.service.http.chat_completions import ChatCompletion, Completion
from dragonrt.service.http.request_body import ApiRequest, json_object
from dragonrt.service.http.responses_api import ApiResponse
from dragonrt.service.view import sources_text, without_sources
from dragonrt.side import Side
from dragonrt.wire.messages import Source

DEFAULTS = ApiRequest(Question(max_tokens=64), 5, ("END",), True, 200)
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
        *("max_output_tokens", "response_format", "sources_in_text", "prompt", "logprobs"),
        *("top_logprobs", "text", "echo"),
    )
)


def chat(**fields: Any) -> ApiRequest:
    return ChatCompletion.parse({"messages": HELLO, **fields}, DEFAULTS)


def test_what_is_left_out_is_the_services_own() -> None:
    request = chat()
    assert request.question == Question(prompt="Hello?", max_tokens=64)
    assert (request.seed, request.stops, request.stream) == (5, ("END",), False)
    assert request.sources_in_text
    assert not request.include_usage


def test_what_is_given_counts() -> None:
    request = chat(seed=0, stop=["a", "b"], max_completion_tokens=9, stream=True, temperature=2)
    assert (request.seed, request.stops, request.stream) == (0, ("END", "a", "b"), True)
    assert (request.question.max_tokens, request.question.sampler.temperature) == (9, 2.0)


@pytest.mark.parametrize(
    ("name", "neutral", "refused"),
    [
        ("n", 1, 2),
        ("n", None, True),
        ("tools", [], [{"type": "function"}]),
        ("tool_choice", "none", "required"),
        ("presence_penalty", 0.0, 0.5),
        ("response_format", {"type": "text"}, {"type": "json_object"}),
        ("response_format", None, {"type": "json_schema", "json_schema": {"name": "a"}}),
        ("logit_bias", {}, {"5": 1}),
        ("user", "me", None),
        ("audio", None, {"voice": "alloy"}),
        ("best_of", None, 3),
    ],
)
def test_what_asks_for_nothing_new_is_taken_and_all_else_refused_by_name(
    name: str, neutral: Any, refused: Any
) -> None:
    chat(**{name: neutral})
    if refused is not None:
        with pytest.raises(ApiError, match=f"^{name} .*is not supported") as error:
            chat(**{name: refused})
        assert (error.value.status, error.value.param) == (400, name)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": 3}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"messages": "Hello?"}, "messages"),
        ({"messages": ["Hello?"]}, "messages[0]"),
        ({"messages": [{"role": "pope", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].type",
        ),
        ({"max_tokens": -2}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"top_logprobs": 2}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (
            {"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]},
            "messages[0].tool_calls",
        ),
        ({"messages": [*HELLO, {"role": "assistant", "content": "Hi."}]}, "messages"),
        ({"messages": []}, "messages"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str | None) -> None:
    with pytest.raises(ApiError) as error:
        chat(**fields)
    assert error.value.status == 400
    assert param is None or error.value.param == param


def test_a_conversation_becomes_turns() -> None:
    def message(role: str, content: str) -> dict[str, str]:
        return {"role": role, "content": content}

    request = chat(
        messages=[
            message("system", "Be brief."),
            message("user", "one"),
            message("user", "two"),
            message("assistant", "first"),
            message("assistant", "more"),
            message("user", "three"),
        ]
    )
    assert request.question.history == (("one\ntwo", "first\nmore"),)
    assert request.question.prompt == "three"
    assert request.question.instructions == "Be brief."


def test_a_response_says_the_same_in_its_own_words() -> None:
    def response(**fields: Any) -> ApiRequest:
        return ApiResponse.parse(fields, DEFAULTS)

    assert response(input="Hello?", max_output_tokens=9).question.prompt == "Hello?"
    parts = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "H"}]}]
    assert response(input=parts).question.prompt == "H"
    assert response(input="H", include=["dragonrt.trace"]).traced
    assert response(input="H", instructions="Be brief.").question.instructions == "Be brief."
    for fields, param in (
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"instructions": 3}, "instructions"),
        ({"input": " "}, "input"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ):
        with pytest.raises(ApiError) as error:
            response(**{"input": "H", **fields})
        assert error.value.param == param


@pytest.mark.parametrize(
    ("asked", "tokens", "warned"),
    [(None, 64, False), (9, 9, False), (-1, 200, False), (5000, 200, True), (10**30, 200, True)],
)
def test_the_longest_answer_is_what_there_is_room_for(
    asked: int | None, tokens: int, warned: bool
) -> None:
    for parse, field, body in (
        (ChatCompletion.parse, "max_tokens", {"messages": HELLO}),
        (ChatCompletion.parse, "max_completion_tokens", {"messages": HELLO}),
        (Completion.parse, "max_tokens", {"prompt": "H"}),
        (ApiResponse.parse, "max_output_tokens", {"input": "H"}),
    ):
        request = parse({**body, field: asked}, DEFAULTS)
        assert request.question.max_tokens == tokens
        assert ("Warning" in request.warnings) == warned
        assert not warned or f"{field}: 200" in request.warnings["Warning"]


def test_what_is_unknown_is_ignored_and_named_in_a_header() -> None:
    assert chat(user="me", n=1).warnings == {}
    unknown = {"store": True, "reasoning_effort": "low", "repeat_penalty": 1.1, "store2": None}
    nested = [{"role": "user", "content": "Hello?", "cache_control": {}}]
    warned = chat(**unknown, messages=nested).warnings["Warning"]
    named = "messages[0].cache_control, store, reasoning_effort, repeat_penalty"
    assert warned == f'299 - "ignored: {named}"'
    response = ApiResponse.parse({"input": "H", "reasoning": {}}, DEFAULTS)
    assert response.warnings == {"Warning": '299 - "ignored: reasoning"'}


@given(st.dictionaries(st.text(), st.just(1), max_size=40))
def test_the_warning_is_a_header_whatever_the_names_are(fields: dict[str, Any]) -> None:
    for value in chat(**{f"?{name}": 1 for name in fields}).warnings.values():
        assert value.isascii()
        assert value.isprintable()
        assert len(value) < 16_000


def test_probabilities_are_refused_where_the_device_does_not_know_them() -> None:
    defaults = replace(DEFAULTS, unranked=lambda sampler: "the cloud decides")
    for parse, fields in (
        (ChatCompletion.parse, {"messages": HELLO, "logprobs": True}),
        (Completion.parse, {"prompt": "H", "logprobs": 0}),
        (ApiResponse.parse, {"input": "H", "top_logprobs": 1}),
    ):
        assert parse(fields, DEFAULTS).question.top_logprobs is not None
        with pytest.raises(ApiError, match="the cloud decides") as error:
            parse(fields, defaults)
        assert error.value.param in fields


def test_a_completion_is_a_question_alone() -> None:
    def completion(**fields: Any) -> ApiRequest:
        return Completion.parse(fields, DEFAULTS)

    assert completion(prompt=["Hello?"], echo=False, suffix="").question.prompt == "Hello?"
    assert completion(prompt="Hello?", logprobs=3).question.top_logprobs == 3
    for fields, param in (
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 6}, "logprobs"),
    ):
        with pytest.raises(ApiError) as error:
            completion(**{"prompt": "Hello?", **fields} if fields else fields)
        assert error.value.param == param


@settings(max_examples=60)
@given(st.dictionaries(NAMES | st.text(max_size=5), JSON, max_size=4), st.booleans())
def test_any_body_makes_a_request_or_an_api_error(fields: dict[str, Any], whole: bool) -> None:
    asked: dict[Any, dict[str, Any]] = {
        ChatCompletion.parse: {"messages": HELLO},
        Completion.parse: {"prompt": "H"},
    }
    for parse in (ChatCompletion.parse, Completion.parse, ApiResponse.parse):
        body = {**fields, **asked.get(parse, {"input": "H"})} if whole else fields
        with suppress(ApiError):
            assert parse(body, DEFAULTS).question.prompt


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"3"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(ApiError, match="the body must be"):
        json_object(data)


@given(st.text(), st.lists(st.text(max_size=9), max_size=3), st.booleans())
def test_what_is_put_behind_a_text_can_be_taken_off_again(
    text: str, names: list[str], lost: bool
) -> None:
    sources: list[tuple[Side, Source]] = [
        ("device", Source("T", f"{name}.md", 0.5)) for name in names
    ]
    behind = sources_text(sources, ["the cloud is lost"] * lost)
    assert bool(behind) == bool(sources or lost)
    assert without_sources(text + behind) == text
