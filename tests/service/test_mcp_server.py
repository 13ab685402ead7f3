"""The tools of an agent, by the official SDK's client."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

from mcp import Client
from mcp_types import CallToolResult

from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.service.chat import Chat
from dragonrt.service.mcp_server import tool_server
from retrieval import Chunk, Hit, RetrievalError

from .conftest import RecitingSide, reciting_device

BOUND_S = 20.0


class Shelf:
    """Stands in for a library of one document."""

    @property
    def librarian(self) -> Self:
        return self

    retriever = index = librarian

    async def call(self, job: Callable[[], Any]) -> Any:
        return job()

    def files(self) -> dict[str, str]:
        return {"notes.txt": "content"}

    def find(self, question: str, k: int, floor: None = None, within: str = "") -> list[Hit]:
        if within not in ("", "notes.txt"):
            raise RetrievalError(f"there is no document {within!r} in the index")
        return [Hit(Chunk("", "The boat exam is on 8 June.", "Notes", "notes.txt", 0, 27), 0.51237)]


@asynccontextmanager
async def tools(answers: dict[str, str]) -> AsyncIterator[tuple[Client, RecitingSide]]:
    device, side = reciting_device(answers)
    device.settings = DragonSettings(disclose=Disclosure.ANSWER)
    server = tool_server(Chat(device, Question(max_tokens=60), 1))
    async with Client(server, read_timeout_seconds=BOUND_S) as client:
        yield client, side


def found(result: CallToolResult) -> Any:
    assert not result.is_error, result.content
    return result.structured_content


async def test_an_answer_has_its_sources_and_what_left() -> None:
    async with tools({"b?": "one two\n"}) as (client, side):
        side.read = "Say one two."
        answer = found(await client.call_tool("ask", {"question": "b?"}))
        assert (answer["text"], answer["finish"]) == ("one two", "stop")
        assert [source["file"] for source in answer["sources"]] == ["notes.txt"]
        assert answer["left"]["tokens_sent"] == 0
        again = {"question": "b?", "level": "answer", "folder": "notes.txt"}
        assert found(await client.call_tool("ask", again))["text"] == "one two"
        assert [(each.document, each.history) for each in side.questions] == [
            ("", ()),
            ("notes.txt", ()),
        ]


async def test_more_than_the_device_discloses_is_refused() -> None:
    async with tools({"b?": "one\n"}) as (client, side):
        refused = await client.call_tool("ask", {"question": "b?", "level": "drafts"})
        assert refused.is_error
        assert not side.questions


async def test_own_documents_are_listed_and_searched() -> None:
    async with tools({}) as (client, side):
        for tool, arguments in (("documents", {}), ("search", {"query": "boat"})):
            assert (await client.call_tool(tool, arguments)).is_error  # there are none
        shelf: Any = Shelf()
        side.library = side.librarian = shelf
        assert found(await client.call_tool("documents", {})) == {
            "files": ["notes.txt"],
            "total": 1,
        }
        passages = found(await client.call_tool("search", {"query": "boat"}))["result"]
        text = "The boat exam is on 8 June."
        assert passages == [{"file": "notes.txt", "text": text, "relevance": 0.5124}]
        assert (await client.call_tool("search", {"query": "boat", "folder": "x"})).is_error
        assert (await client.call_tool("search", {"query": "boat", "most": 1000})).is_error


async def test_the_tools_say_what_each_level_sends() -> None:
    async with tools({}) as (client, _):
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(listed) == {"ask", "search", "documents"}
        assert "redacted: " in str(listed["ask"].input_schema)
