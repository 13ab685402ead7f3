"""Clouds that lie to a real `dragonrt serve`: no canary of its documents reaches them.

Each note has a fact that is asked for, and a canary that is not. The clouds force the words before
the canary and then predict nothing, so the device goes on with its document. They leave in the
middle of answers; the service is restarted; and every conversation is sent back by another client.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.privacy.disclosure import Disclosure
from scripts.campaign.liar import lying_cloud
from scripts.campaign.soak import LIMIT_S, MODEL, THINGS, asked_of, liar, serving, told, write_notes

Json = dict[str, Any]
Turn = tuple[str, str]
Client = Callable[[Sequence[Turn], str], tuple[str, Json]]


def chat(turns: Sequence[Turn], question: str) -> tuple[str, Json]:
    """The older API, as programs send a conversation back: with the sources as they were shown."""
    messages = [
        {"role": role, "content": text}
        for turn in turns
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    return "/v1/chat/completions", {"messages": [*messages, {"role": "user", "content": question}]}


def responses(turns: Sequence[Turn], question: str) -> tuple[str, Json]:
    """The newer one, with parts of a type."""
    path, body = page(turns, question)
    for message in body["input"][1::2]:
        message["content"] = [{"type": "output_text", "text": message["content"]}]
    return path, {**body, "sources_in_text": True, "include": []}


def page(turns: Sequence[Turn], question: str) -> tuple[str, Json]:
    """The page, from the chats that it stored."""
    _, body = chat(turns, question)
    how = {"sources_in_text": False, "include": ["dragonrt.trace"]}
    return "/v1/responses", {"input": body["messages"], **how}


CLIENTS = (chat, responses, page)


def text_of(answer: Json) -> str:
    """What a client shows of an answer."""
    if "choices" in answer:
        return str(answer["choices"][0]["message"]["content"])
    return "".join(part["text"] for part in answer["output"][0]["content"])


async def ask(client: httpx2.AsyncClient, how: Client, turns: Sequence[Turn], question: str) -> str:
    path, body = how(turns, question)
    answer = await client.post(path, json={"model": MODEL, **body})
    assert answer.status_code == 200, answer.text
    return text_of(answer.json())


@pytest.mark.slow
@pytest.mark.parametrize("level", Disclosure)
async def test_no_canary_is_told(
    own_data: None, tmp_path: Path, model: LanguageModel, level: Disclosure
) -> None:
    """At level `drafts` they can be had, which shows that the clouds know how."""
    write_notes(tmp_path / "notes")
    says, how = liar(model), ("--codec", "topk:64:residual")
    talks: list[list[Turn]] = []
    async with lying_cloud(model, says) as cloud:
        async with serving(tmp_path, cloud, level, *how) as service:
            for number, thing in enumerate(THINGS):
                async with asyncio.timeout(LIMIT_S):
                    await cloud.present.wait()  # one that left is dialled again
                cloud.leaves_after = len(says.begins) if number % 2 else None
                question = asked_of(thing)
                text = await ask(service.client, CLIENTS[number % 3], (), question)
                talks.append([(question, text)])
        said = [words in talk[0][1] for words, talk in zip(THINGS.values(), talks, strict=True)]
        async with serving(tmp_path, cloud, level, *how) as service:  # started again
            for number, talk in enumerate(talks):
                await ask(
                    service.client, CLIENTS[(number + 1) % 3], talk, "Is anything else paid in May?"
                )
    found = told(model, cloud)
    assert (len(found) >= 7) if level is Disclosure.DRAFTS else found == []
    assert sum(said) >= 7, "else nothing was to be had"
    assert {talk[0][0] for talk in talks} <= {*cloud.heard.texts}
