"""A device as a server of the Model Context Protocol (MCP): three tools over stdin and stdout."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from dragonrt import __version__
from dragonrt.errors import DragonError
from dragonrt.node.process.composition import Loaded
from dragonrt.node.process.library import Library
from dragonrt.node.process.local_side import LocalSide
from dragonrt.node.process.programs import device
from dragonrt.service.chat import Chat
from dragonrt.service.setup import DeviceSetup
from dragonrt.service.view import LEAVES
from dragonrt.traces.events import OnNotice
from retrieval import RetrievalError

ABOUT = "Answers questions from the user's documents, and says what left this machine for it."
LISTED = 500
"""The most names in a list, which also has the number of all."""
SHOWN = ("text", "finish", "sources", "notices")

_SENT = "; ".join(f"{level}: {leaves}" for level, leaves in LEAVES.items() if level)
Level = Annotated[str, Field(description=f"What is sent. Default: the device's level. {_SENT}")]
Folder = Annotated[str, Field(description="Only these documents, by a name of the list.")]
Passages = Annotated[int, Field(ge=1, le=20, description="The most passages.")]


async def serve_tools(
    setup: DeviceSetup, loaded: Loaded, stops: Sequence[str], on_notice: OnNotice
) -> None:
    """Connect a device to its clouds; serve its MCP tools on stdin and stdout until stdin ends.

    `setup` has the device's settings, `loaded` its model and documents. `stops` are texts that end
    an answer; `on_notice` gets notices of connections. DragonError if a cloud rejects the device.
    """
    async with device(loaded, setup.others, setup.how, on_notice) as connected:
        first = Chat(connected, setup.question, setup.seed, stops)
        await tool_server(first).run_stdio_async()


def tool_server(first: Chat) -> MCPServer[Any]:
    """Return an MCP server of the tools `ask`, `search` and `documents` on `first`'s device."""
    own, side = first.device, first.device.side

    async def ask(question: str, level: Level = "", folder: Folder = "") -> dict[str, Any]:
        """Answer a question from the user's documents and the cloud's.

        Returns the text, its sources, notices, and what left this machine.
        """
        with _refusing():
            at = own.at(level) if level else own
            asked = replace(first.question, document=folder or first.question.document)
            answer = (await Chat(at, asked, first.seed, first.stops).ask(question)).to_object()
            return {**{each: answer[each] for each in SHOWN}, "left": answer["ledger"]}

    async def search(query: str, most: Passages = 5, folder: Folder = "") -> list[dict[str, Any]]:
        """Return passages of the user's own documents, best first. Nothing is sent."""
        with _refusing():
            find = partial(_library(side).find, query, most, within=folder)
            found = [(hit.chunk, hit.score) for hit in await side.librarian.call(find)]
            return [
                {"file": chunk.source, "text": chunk.text, "relevance": round(score, 4)}
                for chunk, score in found
            ]

    async def documents() -> dict[str, Any]:
        """List the names of the user's own documents. Nothing is sent."""
        with _refusing():
            library = _library(side)
            names = await side.librarian.call(lambda: sorted(library.retriever.index.files()))
            return {"files": names[:LISTED], "total": len(names)}

    server = MCPServer[Any]("dragonrt", instructions=ABOUT, version=__version__, log_level="ERROR")
    for tool in (ask, search, documents):
        server.add_tool(tool)
    return server


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except (DragonError, RetrievalError) as error:
        raise ToolError(str(error)) from None


def _library(side: LocalSide) -> Library:
    if side.library is None:
        raise DragonError("this device has no documents: start it with --documents DIR")
    return side.library
