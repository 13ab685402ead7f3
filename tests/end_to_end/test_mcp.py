"""`dragonrt mcp` as an agent starts it: a process of its own, the official SDK's client."""

import os
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from dragonrt.bundled import questions
from dragonrt.node.process.library import Library
from dragonrt.service.cloud_process import CloudProcess


@pytest.mark.slow
async def test_an_agent_asks_and_searches_over_stdio(
    cloud: CloudProcess, library: Library, device_index: Path
) -> None:
    own = ("--port", str(cloud.wait_ready()), "--index", str(device_index), "--seed", "3")
    command = ("-m", "dragonrt", "--config", os.devnull, "mcp", *own, "--model", "dragon-small")
    started = StdioServerParameters(command=sys.executable, args=[*command], env=dict(os.environ))
    asked = next(each for each in questions() if each.demo)
    async with Client(started, read_timeout_seconds=120) as client:
        answer = (await client.call_tool("ask", {"question": asked.text})).structured_content
        listed = (await client.call_tool("documents", {})).structured_content
        found = (await client.call_tool("search", {"query": asked.text})).structured_content
    assert answer is not None
    assert listed is not None
    assert found is not None
    assert answer["sources"]
    assert answer["left"]["tokens_sent"] > 0
    assert listed["total"] == len(listed["files"]) > 50
    assert {each["file"] for each in found["result"]} <= {*listed["files"]}
