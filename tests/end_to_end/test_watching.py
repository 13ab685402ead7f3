"""Documents that are indexed, or change, while a side answers."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt.control.scheduler import Aggregator
from dragonrt.link.stream import Stream
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.chat import News
from dragonrt.service.cloud_process import CloudProcess, cloud_process

from .conftest import DeviceAt, counts, decides

FERRY = "When does the ferry to Lund leave?"
NINE = "The ferry to Lund leaves at 9:15."
TEN = "The ferry to Lund leaves at 10:45."
LONG = Question(seed=4, sampler=Sampler(temperature=5.0), max_tokens=24)
PATIENT = DragonSettings(codec="dense:fp16", aggregator=Aggregator.SYNC, on_loss="wait")
"""Every token waits for the cloud, and a lost connection is waited for."""

ADDED = re.compile("2 files .1 new, 0 changed, 0 deleted")
CHANGED = re.compile("2 files .0 new, 1 changed, 0 deleted")
RENAMED = re.compile("2 files .1 new, 0 changed, 1 deleted")


@contextmanager
def watching_cloud(documents: Path, index: Path) -> Iterator[CloudProcess]:
    options = ("--documents", str(documents), "--index", str(index), "--watch")
    with cloud_process(*options) as process:
        process.wait_ready()
        yield process


@pytest.mark.slow
async def test_questions_are_answered_while_the_rest_is_indexed(
    tmp_path: Path, device_at: DeviceAt
) -> None:
    documents, index = tmp_path / "documents", tmp_path / "index"
    documents.mkdir()
    (documents / "ferry.txt").write_text(NINE)
    days = "\n\n".join(f"# Day {number}\n\nNothing happened." for number in range(300))
    (documents / "diary.md").write_text(f"{days}\n\n# The key\n\nThe spare key is with Anna.")
    with cloud_process("--documents", str(documents), "--index", str(index)) as cloud:
        port = cloud.wait_ready()
        assert any("still to index: 1 files" in line for line in cloud.lines)
        async with device_at(port, documents=None) as device:
            reply = await device.ask(FERRY)
            assert "9:15" in reply.text
            assert [each.file for each in reply.sources] == ["ferry.txt"]
            await asyncio.to_thread(cloud.wait_line, re.compile("chunks of 2 files"))
            reply = await device.ask("Who has the spare key?")
            assert [each.file for each in reply.sources] == ["diary.md"]


@pytest.mark.slow
async def test_a_running_answer_keeps_documents_that_the_next_has_anew(
    tmp_path: Path, device_at: DeviceAt
) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "ferry.txt").write_text(NINE)
    with watching_cloud(documents, tmp_path / "index") as cloud:
        streams: list[Stream] = []

        def kept(stream: Stream) -> Stream:
            streams.append(stream)
            return stream

        async with device_at(cloud.wait_ready(), documents=None, emulate=kept) as device:
            (documents / "bus.txt").write_text("The bus is yellow.")
            await asyncio.to_thread(cloud.wait_line, ADDED)
            before = await device.ask(FERRY, LONG, PATIENT)
            assert "9:15" in (await device.ask(FERRY)).text

            def change(news: News) -> None:
                if decides(news, 3):
                    (documents / "ferry.txt").write_text(TEN)
                    cloud.wait_line(CHANGED)  # holds the answer up: it is not over before
                    streams[-1].abort()

            during = await device.ask(FERRY, LONG, PATIENT, change)
            assert len(streams) == 2, "it went on over another connection"
            assert during.decoded.tokens == before.decoded.tokens
            assert counts(during).alone_from is None

            assert "10:45" in (await device.ask(FERRY)).text
            (documents / "ferry.txt").rename(documents / "boat.txt")
            await asyncio.to_thread(cloud.wait_line, RENAMED)
            moved = await device.ask(FERRY, replace(LONG, max_tokens=1))
            assert [source.file for source in moved.sources] == ["boat.txt"]
