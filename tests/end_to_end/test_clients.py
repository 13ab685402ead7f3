"""Programs that people have, before `dragonrt serve` with a cloud: Ollama's client, a chat page."""

from typing import Any

import httpx2
import pytest
from openai import OpenAI

from dragonrt.service.cloud_process import CloudProcess

from .test_serve import service

__all__ = ["service"]

ASKED = [{"role": "user", "content": "What did Tom promise to do?"}]
TASK = """### Task:
Generate a concise title summarizing the chat history.
### Output:
JSON format: { "title": "your concise title here" }
### Chat History:
<chat_history>
USER: What did Tom promise to do?
ASSISTANT: paint the kitchen and repair the fence
</chat_history>"""


@pytest.mark.slow
def test_ollamas_client_gets_the_text_of_openais(service: tuple[OpenAI, CloudProcess]) -> None:
    client, _ = service
    chat = client.chat.completions.create(model="dragon-small", messages=ASKED)  # type: ignore[arg-type]
    text = chat.choices[0].message.content
    ollama = pytest.importorskip("ollama")
    base = str(client.base_url).removesuffix("v1/")
    with ollama.Client(base, headers=dict(client.auth_headers)) as other:
        (model,) = [each.model for each in other.list().models]
        assert (model, other.show(model).capabilities) == ("dragon-small:latest", ["completion"])
        _, embedder = (each.id for each in client.models.list())
        vector = client.embeddings.create(model=embedder, input="Who?").data[0].embedding
        assert other.embed(embedder, "Who?").embeddings == [vector]
        asked: Any = {"model": model, "messages": ASKED, "options": {"num_ctx": 9}, "think": False}
        whole = other.chat(**asked)
        assert (whole.message.content, whole.done_reason) == (text, "stop")
        assert whole.eval_count > 0
        assert "".join(each.message.content for each in other.chat(**asked, stream=True)) == text
        assert other.generate(model, ASKED[0]["content"]).response == text
        with pytest.raises(ollama.ResponseError, match="images"):
            other.chat(model, [{**ASKED[0], "images": ["aGk="]}])
        with pytest.raises(ollama.ResponseError, match="/api/pull"):
            other.pull(model)


@pytest.mark.slow
def test_tasks_of_a_chat_page_send_the_cloud_nothing(service: tuple[OpenAI, CloudProcess]) -> None:
    client, _ = service
    for asked, sends in ((TASK, False), (ASKED[0]["content"], True)):
        messages: Any = [{"role": "user", "content": asked}]
        reply = client.chat.completions.create(model="dragon-small", messages=messages)
        own = (reply.model_extra or {})["dragonrt"]
        left = [own["ledger"][each] for each in ("question_bytes", "tokens_sent")]
        assert [number > 0 for number in left] == [sends, sends]
        assert bool(own["sources"]) is sends


@pytest.mark.slow
def test_passages_are_found_without_a_model(service: tuple[OpenAI, CloudProcess]) -> None:
    client, _ = service
    with httpx2.Client(base_url=client.base_url, headers=client.auth_headers) as http:
        found = http.get("search", params={"query": "What did Tom promise?", "limit": 2}).json()
        assert len(found["data"]) == 2
        assert "paint the kitchen" in found["data"][0]["text"]
        assert found["data"][0]["source"].endswith("tom promises.md")
        for wrong in ({}, {"query": "x", "limit": "-1"}):
            assert http.get("search", params=wrong).status_code == 400
