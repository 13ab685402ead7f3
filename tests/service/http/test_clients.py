"""What programs send that people have: each body is answered, or refused with the reason.

Those of Open WebUI, openai, llm and ollama were recorded, and Home Assistant's follow its source;
the others have the fields that these programs are known to send.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from .served import Served, served

ROWS = [
    json.loads(line)
    for line in Path(__file__).with_name("client_bodies.jsonl").read_text("utf-8").splitlines()
]


class Anything(dict[str, str]):
    """The same answer to every question."""

    @override
    def __contains__(self, asked: object) -> bool:
        return True

    def __missing__(self, asked: str) -> str:
        return "one two three\n"


def last(path: str, text: str) -> Any:
    """The object of an answer, or the last one of a stream that has what the service says."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if '"warnings"' in line]
    found = json.loads(lines[-1])
    return found.get("response", found) if path == "/v1/responses" else found


async def answered(service: Served, row: dict[str, Any]) -> None:
    response = await service.http.post(row["path"], json=row["body"])
    assert response.status_code == row["status"], response.text
    if row["status"] == 400:
        error = response.json()["error"]
        assert error["param"] == row["param"] if row["param"] else "images" in error
        return
    own = last(row["path"], response.text)["dragonrt"]
    assert own["statistics"]["tokens"] > 0
    assert sorted(own["warnings"]) == sorted(row["says"])
    assert ("warning" in response.headers) == bool(row["says"])


@pytest.mark.parametrize("row", ROWS, ids=[row["client"] for row in ROWS])
async def test_a_clients_body_is_answered_or_refused(row: dict[str, Any]) -> None:
    async with served(Anything()) as service:
        await answered(service, row)
