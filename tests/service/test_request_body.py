"""Bodies: what is supported is taken, everything else is refused by its name."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonrt.modes.question import Question
from dragonrt.service.http.api_errors import ApiError
from dragonrt.service.http.chat_completions import chat_request
from dragonrt.service.http.request_body import ApiRequest, Defaults, RequestBody
from dragonrt.service.http.responses_api import response_request
from dragonrt.service.http.sources_text import sources_text, without_sources
from dragonrt.side import Side
from dragonrt.wire.messages import Source

DEFAULTS = Defaults(Question(max_tokens=64), 5, ("END",), True, 200)
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
        *("max_output_tokens", "response_format", "sources_in_text"),
    )
)


def chat(**fields: Any) -> ApiRequest:
    return chat_request(RequestBody({"messages": HELLO, **fields}), DEFAULTS)


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
        ("logprobs", False, True),
        ("presence_penalty", 0.0, 0.5),
        ("response_format", {"type": "text"}, {"type": "json_object"}),
        ("logit_bias", {}, {"5": 1}),
        ("store", False, True),
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
        with pytest.raises(ApiError, match=f"^{name} is not supported") as error:
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
        ({"messages": [{"role": "user", "content": "x", "tool_calls": []}]}, None),
        ({"messages": [*HELLO, {"role": "assistant", "content": "Hi."}]}, None),
        ({"messages": []}, None),
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
        return response_request(RequestBody(fields), DEFAULTS)

    assert response(input="Hello?", max_output_tokens=9).question.prompt == "Hello?"
    parts = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "H"}]}]
    assert response(input=parts).question.prompt == "H"
    assert response(input="H", include=["dragonrt.trace"]).traced
    assert response(input="H", instructions="Be brief.").question.instructions == "Be brief."
    for fields, param in (
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True}, "store"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"include": ["file_search_call.results"]}, "include"),
    ):
        with pytest.raises(ApiError) as error:
            response(input="H", **fields)
        assert error.value.param == param


@settings(max_examples=60)
@given(st.dictionaries(NAMES | st.text(max_size=5), JSON, max_size=4), st.booleans())
def test_any_body_makes_a_request_or_an_api_error(fields: dict[str, Any], whole: bool) -> None:
    for parse in (chat_request, response_request):
        body = {"messages": HELLO, "input": "H", **fields} if whole else fields
        if whole:
            body.pop("input" if parse is chat_request else "messages")
        with suppress(ApiError):
            assert parse(RequestBody(body), DEFAULTS).question.prompt


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"3"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(ApiError, match="the body must be"):
        RequestBody.parse(data)


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
