"""The Python interface: both sides in this process, with toys as models."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import dragonrt
from dragonrt import DragonError, bundled
from dragonrt.link.shared_key import new_key, write_secret
from dragonrt.settings import SettingError

TOY = bundled.models()[0]
QUESTION, NEXT = "When is the boiler serviced?", "And by whom?"
in_one_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    """A cloud whose index no other process of the tests updates."""
    public, index = bundled.documents("cloud"), tmp_path_factory.mktemp("cloud")
    async with dragonrt.serve_cloud(documents=public, index=index, port=0, model=TOY) as port:
        yield port


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def device(
    port: int, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dragonrt.Device]:
    notes = [str(bundled.documents("device"))]
    index = tmp_path_factory.mktemp("device")
    how: dict[str, Any] = {"model": TOY, "disclose": "answer", "index": index}
    async with dragonrt.connect(f"127.0.0.1:{port}", documents=notes, **how) as device:
        yield device


@in_one_loop
async def test_a_stream_has_the_text_of_its_answer(device: dragonrt.Device) -> None:
    chat = device.chat()
    stream = chat.stream(QUESTION, seed=7)
    pieces = [piece async for piece in stream]
    answer = await stream
    assert "".join(piece.text for piece in pieces).rstrip() == answer.text
    assert all(0 <= piece.device_share <= 1 for piece in pieces)
    assert (await device.chat().ask(QUESTION, seed=7)).text == answer.text
    assert chat.history == [(QUESTION, answer.text)]


@in_one_loop
async def test_an_answer_says_what_left(device: dragonrt.Device) -> None:
    answer = await device.chat().ask(QUESTION)
    assert answer.ledger["question_bytes"] == len(QUESTION.encode())
    assert answer.ledger["distributions_sent"] == 0
    assert [each["text"] for each in answer.to_json()] == [answer.text]
    assert answer.finish in {"stop", "length"}


@in_one_loop
async def test_questions_at_the_same_time_are_turns(device: dragonrt.Device) -> None:
    chat = device.chat()
    await asyncio.gather(chat.ask(QUESTION), chat.ask(NEXT))
    assert [asked for asked, _ in chat.history] == [QUESTION, NEXT]


@in_one_loop
async def test_a_cancelled_answer_is_no_turn(device: dragonrt.Device) -> None:
    chat = device.chat()
    pieces = chat.stream(QUESTION)
    await anext(pieces)
    asking = asyncio.create_task(chat.ask(NEXT))
    await chat.close()
    with pytest.raises(asyncio.CancelledError):
        await pieces
    await asking
    assert [asked for asked, _ in chat.history] == [NEXT]


@in_one_loop
async def test_a_stopped_stream_keeps_what_is_decided(device: dragonrt.Device) -> None:
    chat = device.chat()
    stream = chat.stream("Tell me everything about the garden.")
    first = await anext(stream)
    chat.stop()
    answer = await stream
    assert answer.finish == "cancelled"
    assert answer.text.startswith(first.text.strip())


@in_one_loop
async def test_two_devices_in_one_loop(port: int, device: dragonrt.Device) -> None:
    async with dragonrt.connect(f"127.0.0.1:{port}", model=TOY) as other:
        both = await asyncio.gather(other.ask(QUESTION), device.chat().ask(QUESTION))
    assert [each.text != "" for each in both] == [True, True]


@in_one_loop
async def test_leaving_ends_a_stream_that_nobody_reads(port: int) -> None:
    async with dragonrt.connect(f"127.0.0.1:{port}", model=TOY) as device:
        stream = device.stream(QUESTION)
    with pytest.raises(asyncio.CancelledError):
        await stream


@in_one_loop
async def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(SettingError) as wrong:
        async with dragonrt.connect(colour="red"):
            pass
    assert wrong.value.name == "colour"


@pytest.mark.parametrize("wrong", [{"mode": "none"}, {"max_tokens": 0}, {"codec": "topk:x"}])
@in_one_loop
async def test_a_wrong_setting_ends_before_anything_is_loaded(wrong: dict[str, Any]) -> None:
    with pytest.raises(DragonError):
        async with dragonrt.connect(model="nowhere.gguf", **wrong):
            pass


@in_one_loop
async def test_another_key_is_refused(tmp_path: Path) -> None:
    keys = [tmp_path / "one", tmp_path / "two"]
    for key in keys:
        write_secret(key, new_key(date(2099, 1, 1)).encode())
    async with dragonrt.serve_cloud(port=0, key=keys[0], model=TOY) as port:
        with pytest.raises(DragonError):
            async with dragonrt.connect(f"127.0.0.1:{port}", key=keys[1], model=TOY):
                pass


def test_the_package_loads_nothing_until_it_is_used() -> None:
    light = "import sys, dragonrt; sys.exit(any(n.startswith('dragonrt.') for n in sys.modules))"
    assert subprocess.run([sys.executable, "-c", light], check=False).returncode == 0


def test_every_public_name_is_there() -> None:
    stub = Path(dragonrt.__file__).with_suffix(".pyi").read_text("utf-8")
    assert set(re.findall(r" as (\w+)$", stub, re.MULTILINE)) == set(dragonrt.PUBLIC)
    for name in dragonrt.PUBLIC:
        assert getattr(dragonrt, name).__doc__
