"""A cloud on vLLM itself, and what its device does where the cloud cannot go on."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from dragonrt.backends.model import LanguageModel
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import Address
from dragonrt.service.answer import Piece
from dragonrt.service.chat import News
from dragonrt.service.cloud_process import CloudProcess, cloud_process
from dragonrt.traces.events import NoticeKind
from dragonrt.wire.reasons import HandshakeError, Reason
from tests.end_to_end.conftest import BOTH, connected_device, counts
from tests.tiny_models import saved, tiny

from .conftest import OPTIONS, SIZES

VLLM = ("--engine=vllm", "--dtype=bfloat16", *(f"--engine-option={each}" for each in OPTIONS))
LONG = Question(max_tokens=40, stop_tokens=())


@pytest.fixture(scope="module")
def cloud(directory: Path) -> Iterator[CloudProcess]:
    with cloud_process(*VLLM, model=str(directory)) as process:
        process.wait_ready()
        yield process


@pytest.fixture(scope="module")
def device_model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """The same tokens, and a longer context."""
    sizes = SIZES | {"max_position_embeddings": 1024}
    directory = saved(tiny("llama", **sizes), tmp_path_factory.mktemp("models") / "long")
    return LanguageModel.load(directory, "cpu", "float32")


def address(cloud: CloudProcess) -> Address:
    return Address("127.0.0.1", cloud.wait_ready())


async def test_a_device_of_another_engine_answers_with_it(
    cloud: CloudProcess, device_model: LanguageModel
) -> None:
    async with connected_device(device_model, None, address(cloud), BOTH) as device:
        reply = await device.ask("When?", LONG)
    assert len(reply.decoded.tokens) == 40
    assert counts(reply).alone_from is None
    assert counts(reply).divergences == 0


async def test_an_answer_too_long_for_it_is_given_without_it(
    cloud: CloudProcess, device_model: LanguageModel
) -> None:
    async with connected_device(device_model, None, address(cloud), BOTH) as device:
        reply = await device.ask("When?", Question(max_tokens=300, stop_tokens=()))
        again = await device.ask("When?", LONG)
    assert len(reply.decoded.tokens) == 300
    assert counts(reply).alone_from == 0
    assert [each.kind for each in reply.decoded.notices] == [NoticeKind.ALONE]
    assert "\n" not in reply.decoded.notices[0].text
    assert counts(again).alone_from is None


async def test_a_model_of_other_tokens_is_refused(cloud: CloudProcess) -> None:
    other = LanguageModel.load("dragon-draft")
    with pytest.raises(HandshakeError) as caught:
        async with connected_device(other, None, address(cloud), BOTH):
            pass
    assert caught.value.reason is Reason.TOKENIZER


def workers(cloud: CloudProcess) -> list[int]:
    """The processes of its engine."""
    tasks = Path(f"/proc/{cloud.pid}/task").glob("*/children")
    found = [number for task in tasks for number in task.read_text().split()]
    tracks = b"resource_tracker"  # of Python's own, beside them
    return [int(n) for n in found if tracks not in Path(f"/proc/{n}/cmdline").read_bytes()]


async def test_an_engine_that_dies_ends_answers_with_its_reason(
    directory: Path, device_model: LanguageModel
) -> None:
    apart = "--engine-option=distributed_executor_backend=mp"
    with cloud_process(*VLLM, apart, model=str(directory)) as cloud:
        place, pieces = address(cloud), 0

        def on_news(news: News) -> None:
            nonlocal pieces
            pieces += isinstance(news, Piece)
            if isinstance(news, Piece) and pieces == 5:
                for worker in workers(cloud):
                    os.kill(worker, signal.SIGKILL)

        async with connected_device(device_model, None, place, BOTH) as device:
            first = await device.ask("When?", LONG, on_news=on_news)
            second = await device.ask("When?", LONG)
        for reply in (first, second):
            assert len(reply.decoded.tokens) == 40
            assert NoticeKind.ALONE in [each.kind for each in reply.decoded.notices]
            assert all("\n" not in each.text for each in reply.decoded.notices)
        assert (counts(first).alone_from or 0) >= 5
        assert counts(second).alone_from == 0
        assert not any("Traceback" in line for line in cloud.lines)
