"""A chat: `python docs/examples/chat.py HOST KEY_FILE NOTES`. An empty line ends it."""

import asyncio
import sys
from collections.abc import Iterable

import dragonrt


async def chat(host: str, key: str | None, notes: str, questions: Iterable[str]) -> None:
    """Ask one after another, each with the history of those before; print words as they come."""
    async with dragonrt.connect(host, key=key, documents=notes, disclose="answer") as device:
        for question in questions:
            answer = device.stream(question)
            async for piece in answer:
                print(piece.text, end="", flush=True)
            print("\n ", ", ".join(source.file for source in (await answer).sources))


def typed() -> Iterable[str]:
    """Yield lines until an empty one."""
    while line := input("> "):
        yield line


if __name__ == "__main__":
    asyncio.run(chat(sys.argv[1], sys.argv[2], sys.argv[3], typed()))
