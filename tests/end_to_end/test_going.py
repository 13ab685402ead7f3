"""Starting without a cloud, strangers at its door, and SIGTERM at any moment."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from dragonrt.bundled import documents
from dragonrt.node.connections.connector import NotConnectedError
from dragonrt.node.process.ending import LONGEST_END_S, TERMINATED
from dragonrt.service.cloud_process import CloudProcess, cloud_process, listening_process
from dragonrt.timeouts import USUAL
from dragonrt.traces.events import Disclosed, MessageSent
from dragonrt.traces.file import read_trace
from dragonrt.wire.reasons import Reason

from .conftest import BOTH, SHORT, DeviceAt, counts, plain_environment

QUESTION = "What do you need to make lemon cake?"
TIME_LIMIT_S = 60.0
"""Only stops a test that hangs."""
KEY = b"0123456789abcdef0123456789abcdef"
MOMENTS = [0.4, 1.2, 2.0, 3.0]
"""Seconds from the start of a program to its signal: it imports, loads, indexes, dials, listens."""


@contextmanager
def free_port() -> Iterator[int]:
    """A port where nobody listens as long as the context lasts."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.slow
async def test_a_device_begins_without_its_cloud_and_finds_it(
    cloud: CloudProcess, cloud_index: Path, device_at: DeviceAt
) -> None:
    cloud.wait_ready()  # the index is complete
    with free_port() as port:
        beginning = device_at(port)
        device = await beginning.__aenter__()
    try:
        assert not device.connector.connected
        alone = await device.ask("What do I do when the printer beeps?")
        assert "press green twice" in alone.text
        assert counts(alone).alone_from == 0
        patient = replace(BOTH, on_loss="wait")
        with pytest.raises(NotConnectedError):
            await device.ask(QUESTION, SHORT, patient)
        with cloud_process("--index", str(cloud_index), "--port", str(port)) as late:
            await asyncio.to_thread(late.wait_ready)
            assert await device.connector.wait_connected(TIME_LIMIT_S) is not None
            together = await device.ask(QUESTION, SHORT, patient)
            assert "three lemons" in together.text
            assert counts(together).alone_from is None
            assert device.connector.reconnections == 0
    finally:
        await beginning.__aexit__(None, None, None)


def dragonrt(*options: str) -> "subprocess.Popen[str]":
    """The program, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "dragonrt", "--config", os.devnull, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=plain_environment(),
        text=True,
    )


@pytest.mark.slow
def test_a_wrong_key_is_told_before_anything_is_indexed(
    cloud_index: Path, cloud: CloudProcess, tmp_path: Path
) -> None:
    cloud.wait_ready()  # the index is complete
    for name, key in (("right", KEY), ("wrong", KEY[::-1])):
        (tmp_path / name).write_bytes(key)
    index = tmp_path / "index"
    own = ("--index", str(cloud_index), "--key-file", str(tmp_path / "right"))
    with cloud_process(*own) as keyed:
        device = ["device", "--model", "dragon-small", "--port", str(keyed.wait_ready())]
        device += ["--documents", str(documents("device")), "--index", str(index)]
        with dragonrt(*device, "--key-file", str(tmp_path / "wrong"), "--ask", "Who?") as wrong:
            _, said = wrong.communicate(timeout=TIME_LIMIT_S)
    assert wrong.returncode == 1
    assert len(said.splitlines()) == 1
    assert not index.exists()


@pytest.mark.slow
def test_a_preview_in_a_pipe_sends_no_question(tmp_path: Path, cloud: CloudProcess) -> None:
    port, trace = str(cloud.wait_ready()), tmp_path / "trace"
    options = ["device", "--model", "dragon-small", "--port", port, "--trace", str(trace)]
    options += ["--documents", str(documents("device")), "--index", str(tmp_path / "index")]
    with dragonrt(*options, "--preview", "--json", "--ask", QUESTION) as device:
        shown, said = device.communicate(timeout=TIME_LIMIT_S)
    assert device.returncode == 0, said
    preview = json.loads(shown)
    assert (preview["question"], preview["level"]) == (QUESTION, "drafts")
    sent = {each.event.message for each in read_trace(trace) if isinstance(each.event, MessageSent)}
    assert "open" not in sent
    assert not any(isinstance(each.event, Disclosed) for each in read_trace(trace))


@pytest.mark.slow
@pytest.mark.parametrize("program", ["cloud", "serve", "device"])
def test_sigterm_ends_a_program_at_any_moment(
    program: str, tmp_path: Path, cloud: CloudProcess
) -> None:
    """In order (0) or, before it is ready, by the signal's own code; never later than its bound."""
    known = documents("cloud" if program == "cloud" else "device")
    options = [program, "--model", "dragon-small", "--documents", str(known)]
    options += {
        "cloud": ["--port", "0"],
        "serve": ["--http-port", "0", "--port", str(cloud.wait_ready())],
        "device": ["--port", str(cloud.wait_ready()), "--ask", QUESTION, "--max-tokens", "200"],
    }[program]
    with ExitStack() as stack:
        running = [
            stack.enter_context(dragonrt(*options, "--index", str(tmp_path / str(number))))
            for number in range(len(MOMENTS))
        ]
        before = 0.0
        for process, moment in zip(running, MOMENTS, strict=True):
            try:
                process.wait(moment - before)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)
            before = moment
        codes = [process.wait(LONGEST_END_S + USUAL.answer_s) for process in running]
        said = [process.communicate()[1] for process in running]
    assert set(codes) <= {0, TERMINATED, -signal.SIGTERM}
    assert not any("Traceback" in each for each in said)


@pytest.mark.slow
def test_sigterm_ends_the_first_process_of_a_container(tmp_path: Path) -> None:
    """The kernel drops signals that a process of number 1 leaves to their default."""
    isolate = ["unshare", "--pid", "--fork", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*isolate, "true"]).returncode:
        pytest.skip("no process namespace can be had here")
    program = "import time; print('here', flush=True); time.sleep(600)"
    entry = f"import sys; from dragonrt.cli import app, main\n@app.command\ndef wait():\n {program}"
    command = [*isolate, sys.executable, "-c", f"{entry}\nsys.argv[1:] = ['wait']\nmain()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as outer:
        assert outer.stdout is not None
        assert outer.stdout.readline() == "here\n"
        inner = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0]
        os.kill(int(inner), signal.SIGTERM)
        assert outer.wait(LONGEST_END_S + USUAL.answer_s) == TERMINATED


@pytest.mark.slow
def test_a_clouds_operator_pages_have_nothing_private(
    cloud: CloudProcess, cloud_index: Path, device_at: DeviceAt
) -> None:
    cloud.wait_ready()  # the index is complete
    with cloud_process("--index", str(cloud_index), "--http-port", "0") as told:
        port = told.wait_ready()
        url = told.wait_line(re.compile(r"http://127\.0\.0\.1:\d+$"))[0]

        async def ask() -> None:
            async with device_at(port) as device:
                await device.ask(QUESTION)

        def page(path: str) -> str:
            with urllib.request.urlopen(url + path, timeout=TIME_LIMIT_S) as found:
                return str(found.read(), "utf-8")

        with closing(socket.create_connection(("127.0.0.1", port))) as stranger:
            stranger.send(b"\0\0\0\1?")
            heard = b"".join(iter(lambda: stranger.recv(4096), b""))
            assert Reason.MALFORMED.encode() in heard, "it hears why before it is hung up on"
            told.wait_line(re.compile("refused {}:{}: .".format(*stranger.getsockname())))
            asyncio.run(ask())
        assert json.loads(page("/health")) == {"status": "ok"}
        assert json.loads(page("/ready")) == {"ready": True}
        text = page("/metrics")
    metrics = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert metrics["dragonrt_answers_total"] == 1
    assert metrics["dragonrt_device_connections_total"] == 1
    assert metrics["dragonrt_handshakes_failed_total"] == 1
    assert metrics["dragonrt_index_chunks"] > 0
    assert metrics["dragonrt_batch_size_count"] > 0
    assert {"dragonrt_devices", "dragonrt_sessions", "dragonrt_engine_queue"} <= metrics.keys()
    names = [path.name for path in documents("cloud").iterdir()]
    assert not any(name in text for name in (*names, "127.0.0.1", "lemon"))


@pytest.mark.slow
def test_text_over_http_outlives_its_cloud() -> None:
    """Nothing shown is taken back, and the text is that of a cloud which lives."""
    public = ("--documents", str(documents("cloud")))
    own = ("--model", "dragon-small", "--documents", str(documents("device")), "--http-port", "0")
    # A long answer, every token of which waits for the cloud.
    how = ["--temperature", "5", "--seed", "4", "--max-tokens", "24", "--on-loss", "wait"]
    how += ["--aggregator", "sync", "--codec", "dense:fp16"]
    with ExitStack() as stack:
        cloud = stack.enter_context(cloud_process(*public))
        port = str(cloud.wait_ready())
        program = ("dragonrt", "--config", os.devnull, "serve", *own, *how, "--port", port)
        service = stack.enter_context(listening_process(*program))
        url = f"http://127.0.0.1:{service.wait_ready()}/v1"
        client = stack.enter_context(OpenAI(base_url=url, api_key="none", max_retries=0))

        def text(killed_after: int = 0) -> str:
            shown: list[str] = []
            for event in client.responses.create(
                model="dragon-small",
                input=QUESTION,
                stream=True,
                timeout=2 * TIME_LIMIT_S,
                extra_body={"sources_in_text": False},
            ):
                if event.type == "response.output_text.delta":
                    shown.append(event.delta)
                    if len(shown) == killed_after:
                        os.kill(cloud.pid, signal.SIGKILL)
                        stack.enter_context(cloud_process(*public, "--port", port)).wait_ready()
                elif event.type in ("response.completed", "response.incomplete"):
                    assert "".join(shown).strip() == event.response.output_text
                    return event.response.output_text
            raise AssertionError

        whole = text()
        assert text(killed_after=7) == whole
        assert text() == whole
