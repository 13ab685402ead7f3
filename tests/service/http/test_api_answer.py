"""Answers over HTTP: both APIs, by the official client and by hand."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import openai
import pytest

from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.process.composition import Loaded
from dragonrt.node.process.local_side import LongQuestionError
from dragonrt.node.process.programs import Device
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.service.http import api_answer, application, guard
from dragonrt.service.http.api_answer import AnswerDesk, AnswerResponse, Reply
from dragonrt.service.http.api_request import ApiError, ApiRequest
from dragonrt.service.http.forms import FORMS as APIS
from dragonrt.service.http.guard import Admission
from dragonrt.service.http.http_settings import HttpSettings
from dragonrt.service.http.metrics import DeviceMetrics
from dragonrt.service.http.web_server import WebServer
from dragonrt.service.setup import DeviceSetup
from tests.service.conftest import READS_ENGLISH, reciting_device

from .served import ALONE, BOUND_S, EVERY_FORM, FORMS, Form, chat_body, served, until

KNOWN = {"a?": "É 🐉!\n", "b?": "one two three\n", "long?": "x" * 300, "bad?": "ab\x01"}


def events(response: httpx2.Response) -> list[Any]:
    """The data of a stream's events."""
    lines = (line.removeprefix("data: ") for line in response.text.splitlines() if "data: " in line)
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def pieces(form: Form, response: httpx2.Response) -> list[str]:
    """The pieces of text in a stream."""
    found = (form.piece(each) for each in events(response) if each != "[DONE]")
    return [text for text in found if text]


def deltas(response: httpx2.Response) -> list[str]:
    return pieces(FORMS["chat"], response)


async def test_the_official_client_gets_one_text_both_ways() -> None:
    async with served(KNOWN) as service, service.openai() as client:
        assert [model.id async for model in client.models.list()] == ["bytes"]
        asked: Any = {"model": "bytes", "messages": [{"role": "user", "content": "a?"}], "seed": 1}
        whole = await client.chat.completions.create(**asked)
        stream = await client.chat.completions.create(
            **asked, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        message = whole.choices[0].message
        assert text == message.content
        assert message.annotations is not None
        assert message.annotations[0].url_citation.url == "dragonrt:device/notes.txt"
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].usage == whole.usage
        assert whole.usage is not None
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (3, 9)


async def test_two_parts_are_one_answer_with_both_sources() -> None:
    known = {"What is it?": "It is Heron.\n", "Who bred it?": "I don't know.\n", "When?": "May\n"}
    text = "It is Heron. Who bred it: I don't know."
    async with served(known) as service:
        for asked, cited, prompts in (
            ("What is it, and who bred it?", ["It is Heron"], 2),
            ("What is it, and when?", ["It is Heron", "May"], 2),
        ):
            whole = (await service.chat(asked)).json()
            message = whole["choices"][0]["message"]
            places = [each["url_citation"] for each in message["annotations"]]
            found = [message["content"][at["start_index"] : at["end_index"]] for at in places]
            assert (found, whole["usage"]["prompt_tokens"]) == (cited, prompts * 3)
        streamed = deltas(await service.chat("What is it, and who bred it?", stream=True))
        assert ("".join(streamed), len(streamed) > 2) == (text, True)


async def test_sentences_and_missing_codes_are_annotated() -> None:
    async with served({"code?": "so plum-39, 12\n", "b?": "I don't know.\n"}) as service:
        service.side.read = "Say 12 times plum-otter-39. Or say 12."
        whole = (await service.chat("code?")).json()
        (cited, unseen) = whole["choices"][0]["message"]["annotations"]
        sentence = cited["url_citation"]["sentence"]
        place = {"text": "plum-39", "start_index": 3, "end_index": 10}
        assert sentence == "Say 12 times plum-otter-39."
        assert unseen == {"type": "dragonrt.not_found", **place}
        assert whole["dragonrt"]["not_found"] == [place]
        chunks = events(await service.chat("code?", stream=True))
        last = next(each for each in reversed(chunks) if each != "[DONE]" and each["choices"])
        assert last["choices"][0]["delta"]["annotations"] == [cited, unseen]
        response = (await service.ask(FORMS["response"], "code?")).json()
        found = response["output"][0]["content"][0]["annotations"]
        assert (found[0]["sentence"], found[1]) == (sentence, unseen)
        read = (await service.chat("code?", sources_in_text=True)).json()
        *_, source, _, _, note = read["choices"][0]["message"]["content"].splitlines()
        assert f"“{sentence}”" in source
        assert "plum-39" in note
        none = (await service.chat("b?")).json()
        assert none["choices"][0]["message"]["annotations"] == []


async def test_responses_are_typed_events() -> None:
    async with served(KNOWN) as service, service.openai() as client:
        whole = await client.responses.create(model="bytes", input="a?")
        stream = await client.responses.create(model="bytes", input="a?", stream=True)
        told = [event async for event in stream]
        assert [event.sequence_number for event in told] == list(range(len(told)))
        assert [told[0].type, told[-1].type] == ["response.created", "response.completed"]
        text = "".join(e.delta for e in told if e.type == "response.output_text.delta")
        assert text == whole.output_text
        last = told[-1]
        assert last.type == "response.completed"
        assert last.response.output_text == text
        assert last.response.usage == whole.usage
        annotated = [e for e in told if e.type == "response.output_text.annotation.added"]
        assert len(annotated) == 1
        cut = await client.responses.create(model="bytes", input="long?", max_output_tokens=7)
        assert (cut.status, cut.output_text) == ("incomplete", "xxxxxxx")
        assert cut.incomplete_details is not None
        assert cut.incomplete_details.reason == "max_output_tokens"


async def test_no_request_discloses_more_than_the_device() -> None:
    how = DragonSettings(disclose=Disclosure.ANSWER)
    async with served(KNOWN, how=how) as service:
        assert [*(await service.http.get("/version")).json()["levels"]] == [Disclosure.ANSWER]
        assert (await service.chat("b?", disclose="answer")).status_code == 200
        for more in ("drafts", "redacted", "all"):  # this model has no tokens for a marker
            refused = await service.chat("b?", disclose=more)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "disclose")


async def test_how_an_answer_comes_about_is_told_to_who_asks() -> None:
    async with served(KNOWN) as service:
        body = {"model": "bytes", "input": "b?", "stream": True, "include": ["dragonrt.trace"]}
        told = events(await service.http.post("/v1/responses", json=body))
        trace = [e for each in told if each["type"] == "dragonrt.trace" for e in each["events"]]
        decided = [e["text"] for e in trace if e["event"] == "decide"]
        assert "".join(decided) == "one two three\n"
        assert {"open", "ready", "draft", "notice", "close", "link"} <= {e["event"] for e in trace}
        assert not any("payload" in e for e in trace), "drafts hold private distributions"


async def test_each_token_comes_with_its_probability_to_who_asks() -> None:
    text = "one two three"
    async with served(KNOWN) as service, service.openai() as client:
        whole = (await service.chat("b?", logprobs=True, top_logprobs=2)).json()["choices"][0]
        tokens = whole["logprobs"]["content"]
        assert "".join(token["token"] for token in tokens) == text
        for token in tokens:
            alone = {name: token[name] for name in ("token", "logprob", "bytes")}
            assert (token["logprob"], token["top_logprobs"]) == (0.0, [alone])
        streamed = events(await service.chat("b?", logprobs=True, stream=True))
        pieces = [c["choices"][0] for c in streamed if c != "[DONE]" and c["choices"]]
        told = [each for piece in pieces for each in (piece["logprobs"] or {}).get("content", [])]
        assert [each["token"] for each in told] == [each["token"] for each in tokens]
        for piece in pieces:
            if content := piece["delta"].get("content"):
                assert "".join(t["token"] for t in piece["logprobs"]["content"]) in content
        response = await client.responses.create(
            model="bytes", input="b?", include=["message.output_text.logprobs"], top_logprobs=1
        )
        part: Any = response.output[0]
        assert "".join(each.token for each in part.content[0].logprobs) == text
        assert (await service.chat("b?")).json()["choices"][0]["logprobs"] is None


async def test_ignored_fields_are_a_header_and_timings_are_there() -> None:
    async with served(KNOWN) as service:
        for stream in (False, True):
            response = await service.chat("b?", stream=stream, cache_prompt=True, max_tokens=900)
            warned = '299 - "ignored: cache_prompt; max_tokens: 200 is the most"'
            assert response.headers["warning"] == warned
            told = events(response) if stream else [response.json()]
            (own,) = [e["dragonrt"] for e in told if e != "[DONE]" and "dragonrt" in e]
            assert "; ".join(own["warnings"]) in warned
            (timings,) = [e["timings"] for e in told if e != "[DONE]" and "timings" in e]
            assert {"prompt_n", "prompt_ms", "predicted_ms", "predicted_per_second"} <= set(timings)
            # There is nobody to compare a draft with.
            counted = [timings[n] for n in ("predicted_n", "draft_n", "draft_n_accepted")]
            assert counted == [14, 0, 0]
        assert "warning" not in (await service.chat("b?", max_tokens=-1)).headers


@EVERY_FORM
async def test_a_long_question_is_named_by_its_field(form: Form) -> None:
    def refuse() -> None:
        raise LongQuestionError(900, 100, "bytes")

    async with served(KNOWN) as service:
        service.side.on_prepare = refuse
        response = await service.ask(form, "b?")
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, form.asked_in)
        assert error["code"] == "context_length_exceeded"


async def test_a_question_in_another_language_is_an_error_of_its_own() -> None:
    async with served(KNOWN) as service:
        service.side.model = READS_ENGLISH
        response = await service.chat("Wann ist der Kurs?")
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "unsupported_language"
        (model,) = (await service.http.get("/v1/models")).json()["data"]
        assert model["languages"] == ["English"]


async def test_an_answer_leaves_room_for_the_question() -> None:
    async with served(KNOWN) as service:
        for length in (4, 400, 2000):
            await service.chat("x" * length, max_tokens=-1)
        short, long, longest = (asked.max_tokens for asked in service.side.questions)
        assert (short, longest) == (200, 60), "the most, and what is the default anyhow"
        assert 60 < long < 512 - 400


async def test_without_documents_there_is_no_embedder() -> None:
    async with served(KNOWN) as service:
        body = {"model": "all-MiniLM-L6-v2", "input": "x"}
        refused = await service.http.post("/v1/embeddings", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "no_documents")
        refused = await service.http.get("/v1/search", params={"query": "x"})
        assert refused.json()["error"]["code"] == "no_documents"


@EVERY_FORM
@pytest.mark.parametrize(("stop", "text"), [(["zzz", "o t"], "one tw"), ("e", "on")])
async def test_nothing_of_a_stop_string_is_ever_streamed(form: Form, stop: Any, text: str) -> None:
    async with served(KNOWN) as service:
        whole = form.text((await service.ask(form, "b?", stop=stop)).json())
        streamed = pieces(form, await service.ask(form, "b?", stop=stop, stream=True))
        assert "".join(streamed) == whole == text


async def test_earlier_turns_are_read_without_their_sources() -> None:
    async with served(KNOWN) as service:
        first = (await service.chat("a?", sources_in_text=True)).json()
        content = first["choices"][0]["message"]["content"]
        assert "Sources:" in content
        messages = [
            {"role": "user", "content": "a?"},
            {"role": "assistant", "content": content},
            {"role": "user", "content": [{"type": "text", "text": "b?"}]},
        ]
        await service.chat("", messages=messages)
        assert service.side.heard[-1] == ("b?", (("a?", "É 🐉!"),))


@EVERY_FORM
@pytest.mark.parametrize("stream", [False, True])
async def test_errors_before_the_first_byte_are_http_errors(form: Form, stream: bool) -> None:
    async with served(KNOWN) as service:
        response = await service.ask(form, "what?", stream=stream)
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "answer_failed"


async def test_errors_behind_the_first_byte_are_events() -> None:
    async with served(KNOWN) as service, service.openai() as client:
        told = events(await service.chat("bad?", stream=True))
        assert told[-2]["error"]["message"] == "the model broke"
        assert (await service.chat("bad?")).status_code == 500
        failed = await client.responses.create(model="bytes", input="bad?", stream=True)
        last = [event async for event in failed][-1]
        assert last.type == "response.failed"
        assert last.response.error is not None
        assert last.response.error.message == "the model broke"


@pytest.mark.parametrize(("stream", "halt_at"), [(True, 3), (False, 0)])
async def test_a_client_that_goes_away_stops_its_answer(stream: bool, halt_at: int) -> None:
    async with served(KNOWN, halt_at=halt_at, at_once=1) as service:
        begun, closed = asyncio.Event(), asyncio.Event()
        service.side.on_prepare, service.side.on_close = begun.set, closed.set
        asked = asyncio.create_task(service.chat("long?", stream=stream))
        async with asyncio.timeout(BOUND_S):
            await begun.wait()
            asked.cancel()
            await closed.wait()
            service.side.halt_at = None
            assert (await service.chat("b?")).status_code == 200, "its place is free"
            page = (await service.http.get("/metrics")).text
            assert 'dragonrt_answers_total{finish="cancelled"} 1.0' in page


@pytest.mark.parametrize(("form", "silent"), [("chat", ": waiting"), ("ollama", '{"model"')])
async def test_a_waiting_stream_sends_bytes_at_once(
    form: str, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the queue, while documents are read, and then while nothing is decided."""
    monkeypatch.setattr(api_answer, "FIRST_S", 0.0)
    monkeypatch.setattr(api_answer, "PING_S", 0.001)
    path = {"chat": "/v1/chat/completions", "ollama": "/api/chat"}[form]
    async with served(KNOWN, halt_at=3, at_once=1) as service, asyncio.timeout(BOUND_S):
        body = chat_body("long?", stream=True)
        first = service.http.stream("POST", path, json=body)
        second = service.http.stream("POST", path, json=body)
        async with first as running, second as waiting:
            assert service.admission.waiting == 1
            for response in (running, waiting):
                assert (await anext(response.aiter_lines())).startswith(silent)
        await until(lambda: service.admission.running + service.admission.waiting == 0)


async def test_a_late_refusal_is_an_event_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_answer, "FIRST_S", 0.0)
    monkeypatch.setattr(guard, "LONGEST_WAIT_S", 0.05)
    async with served(KNOWN, halt_at=0, at_once=1) as service:
        busy = asyncio.create_task(service.chat("long?"))
        await until(lambda: service.admission.running == 1)
        told = events(await service.chat("b?", stream=True))
        assert (told[0]["error"]["code"], told[1]) == ("overloaded", "[DONE]")
        assert 'refused_total{status="503"} 1.0' in (await service.http.get("/metrics")).text
        busy.cancel()
        await until(lambda: service.admission.running == 0)


async def test_a_reader_that_stops_reading_holds_no_place() -> None:
    device, _ = reciting_device(KNOWN)
    admission = Admission(1, 0)
    desk = AnswerDesk(device, admission, DeviceMetrics())
    defaults = ApiRequest(Question(max_tokens=400), None, (), True, 400)
    form = APIS["/v1/chat/completions"]
    request = form.parse(chat_body("long?", stream=True), defaults)
    sent, gone = asyncio.Event(), asyncio.Event()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.set()
        await gone.wait()

    response = AnswerResponse(desk, Reply("bytes", request), form)
    reading = asyncio.create_task(response({"type": "http"}, receive, send))
    async with asyncio.timeout(BOUND_S):
        await sent.wait()
        await until(lambda: admission.running == 0)
        async with admission.place():
            gone.set()
        await reading


async def test_tasks_of_a_chat_page_wait_behind_people() -> None:
    task = "### Task:\nGenerate a title.\n<chat_history>\n</chat_history>"
    async with served({**KNOWN, task: "{}\n"}, halt_at=0, at_once=1) as service:
        asked = [asyncio.create_task(service.chat("long?"))]
        await until(lambda: service.admission.running == 1)
        for words in (task, "b?", "a?"):
            asked.append(asyncio.create_task(service.chat(words, sources_in_text=True)))
            await until(lambda: service.admission.waiting == len(asked) - 1)
        service.side.halt_at = None
        asked[0].cancel()
        answers = await asyncio.gather(*asked[1:])
        assert [each.status_code for each in answers] == [200, 200, 200]
        assert [words for words, _ in service.side.heard] == ["long?", "b?", "a?", task]
        own = answers[0].json()
        assert own["choices"][0]["message"]["content"] == "{}"
        assert own["dragonrt"]["ledger"]["question_bytes"] == 0
        assert service.side.questions[-1].documents == 0


async def test_tasks_of_a_chat_page_leave_room_for_people() -> None:
    admission = Admission(1, 4)
    await admission.enter()
    tasks = [asyncio.create_task(admission.enter(behind=True)) for _ in range(4)]
    await until(lambda: admission.waiting + sum(each.done() for each in tasks) == 4)
    person = asyncio.create_task(admission.enter())
    await until(lambda: person.done() or admission.waiting == 3)
    errors = [each.exception() for each in (*tasks, person) if each.done()]
    assert [isinstance(each, ApiError) and each.status for each in errors] == [429, 429]
    assert not person.done()
    for each in (*tasks, person):
        each.cancel()
    await asyncio.gather(*tasks, person, return_exceptions=True)


async def test_nothing_follows_an_answer_that_its_client_ends() -> None:
    async with served(KNOWN) as service:
        for fields, text in (
            ({"stop": "w"}, "one t"),
            ({"stop": ["hre", "th"]}, "one two "),
            ({"max_tokens": 3}, "one"),
        ):
            response = await service.chat("b?", sources_in_text=True, **fields)
            assert response.json()["choices"][0]["message"]["content"] == text
        whole = await service.chat("b?", sources_in_text=True, stop="never")
        assert "Sources:" in whole.json()["choices"][0]["message"]["content"]


async def test_a_client_that_goes_away_leaves_the_queue() -> None:
    async with served(KNOWN, halt_at=0, at_once=1) as service:
        first, second = (asyncio.create_task(service.chat("long?")) for _ in range(2))
        await until(lambda: service.admission.waiting == 1)
        second.cancel()
        await until(lambda: service.admission.waiting == 0)
        first.cancel()
        await until(lambda: service.admission.running == 0)


async def test_many_are_answered_at_once_and_too_many_are_refused() -> None:
    async with served(KNOWN, halt_at=0, at_once=2, waiting=1) as service:
        busy = [asyncio.create_task(service.chat("long?")) for _ in range(3)]
        await until(lambda: (service.admission.running, service.admission.waiting) == (2, 1))
        refused = await service.chat("a?")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
        service.admission.closing = True
        ending = await service.chat("a?")
        assert (ending.status_code, ending.json()["error"]["code"]) == (503, "stopping")
        assert (await service.http.get("/ready")).status_code == 503
        for each in busy:
            each.cancel()
        await until(lambda: service.admission.running == 0)


async def test_an_answer_under_way_is_finished_when_the_service_ends() -> None:
    async with served(KNOWN) as service:

        def end() -> None:
            service.admission.close()
            service.server.stop()

        service.side.on_prepare = end
        response = await service.chat("b?", stream=True)
        assert "".join(deltas(response)) == "one two three"
        assert await asyncio.wait_for(service.admission.drained(), BOUND_S)
        with suppress(httpx2.TransportError):  # once nobody listens any more
            assert (await service.chat("b?")).status_code == 503


async def test_who_asks_while_the_service_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the answers under way are given; a second signal does not wait for them."""
    (reciting, side), stop = reciting_device(KNOWN, halt_at=0), WebServer.stop
    signals: list[Callable[[], None]] = []
    stops: list[WebServer] = []
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def device(*_: Any) -> AsyncIterator[Device]:
        yield reciting

    def stopping(server: WebServer) -> None:
        stops.append(server)
        stop(server)

    monkeypatch.setattr(application, "device", device)
    monkeypatch.setattr(application, "on_signals", lambda numbers, *steps: signals.extend(steps))
    monkeypatch.setattr(WebServer, "stop", stopping)
    setup = DeviceSetup(Question(), ALONE, (), SideSettings("device"), None, ())
    model: Any = side.model
    loaded = Loaded(setup.side, model)
    given = setup, loaded, HttpSettings(http_port=0), (), print, ready.set_result
    serving = asyncio.create_task(application.serve_device(*given))
    async with httpx2.AsyncClient(base_url=await ready, timeout=BOUND_S) as http:
        path, asked = "/v1/chat/completions", chat_body("long?")
        halted = asyncio.create_task(http.post(path, json=asked))
        await until(lambda: bool(side.heard))
        signals[0]()
        for _ in range(2):
            refused = await http.post(path, json=asked, headers={"Connection": "close"})
            assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        assert not stops
        signals[1]()
        await serving
        halted.cancel()  # in this process its connection stays open
        await asyncio.gather(halted, return_exceptions=True)


async def test_what_happened_is_counted() -> None:
    async with served(KNOWN) as service:
        await service.chat("b?")
        await service.chat("a?", n=2)
        page = (await service.http.get("/metrics")).text
        for line in (
            'dragonrt_answers_total{finish="stop"} 1.0',
            'dragonrt_answers_together_total{others="none"} 1.0',
            'dragonrt_refused_total{status="400"} 1.0',
            "dragonrt_generation_tokens_total 14.0",
            "dragonrt_time_to_first_token_seconds_count 1.0",
            "dragonrt_inter_token_latency_seconds_count 13.0",
            'dragonrt_spec_decode_num_draft_tokens_total{side="device"}',
            'dragonrt_connected{peer="cloud"} 0.0',
            "dragonrt_num_requests_running 0.0",
        ):
            assert line in page


async def test_the_official_client_knows_refusals() -> None:
    async with served(KNOWN) as service, service.openai() as client:
        asked: Any = {"messages": [{"role": "user", "content": "a?"}]}
        unnamed = await service.http.post("/v1/chat/completions", json=asked)
        assert unnamed.status_code == 200, "a client of llama.cpp's server names no model"
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(model="gpt", **asked)
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model="bytes", n=2, **asked)
        assert (unknown.value.param, unknown.value.code) == ("model", "model_not_found")
        assert (refused.value.param, refused.value.code) == ("n", "unsupported_parameter")


@pytest.mark.parametrize("stream", [False, True])
async def test_without_its_cloud_a_device_says_when_to_retry(stream: bool) -> None:
    async with served(KNOWN, how=DragonSettings(on_loss="wait")) as service:
        refused = await service.chat("a?", stream=stream)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_connected")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await service.http.get("/ready")).status_code == 503
