"""A file of questions, one a line, to JSON lines: `batch.py HOST KEY_FILE NOTES < questions`."""

import asyncio
import json
import sys
from collections.abc import Iterable

import dragonrt


async def batch(
    host: str, key: str | None, notes: str, questions: Iterable[str], at_once: int = 4
) -> list[str]:
    """Return one JSON object per question, in their order; a few are answered at once."""
    turn = asyncio.Semaphore(at_once)

    async with dragonrt.connect(host, key=key, documents=notes) as device:

        async def ask(question: str) -> str:
            async with turn:
                answer = await device.chat().ask(question, seed=0)  # no history of the others
            files = [source.file for source in answer.sources]
            return json.dumps({"question": question, "answer": answer.text, "files": files})

        return list(await asyncio.gather(*map(ask, questions)))


if __name__ == "__main__":
    lines = [line.strip() for line in sys.stdin if line.strip()]
    print("\n".join(asyncio.run(batch(sys.argv[1], sys.argv[2], sys.argv[3], lines))))
