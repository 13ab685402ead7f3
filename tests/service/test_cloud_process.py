"""A cloud in a second process: it always ends, and it says why it did not start."""

import os
import signal
import sys

import pytest

from dragonrt.errors import DragonError
from dragonrt.service.cloud_process import CloudProcess, cloud_process


def started(program: str) -> CloudProcess:
    """A process that stands for a cloud."""
    return CloudProcess([sys.executable, "-S", "-c", program])


SERVING = """
import signal, sys
print("index: 3 chunks", file=sys.stderr)
print("cloud: toy on cpu listens on 127.0.0.1:4711", file=sys.stderr, flush=True)
signal.pause()
"""


def test_a_cloud_is_ready_once_it_says_where_it_listens() -> None:
    cloud = started(SERVING)
    assert cloud.wait_ready() == 4711
    assert cloud.lines[0] == "index: 3 chunks"
    cloud.end()
    with pytest.raises(ProcessLookupError):
        os.kill(cloud.pid, 0)


def test_a_cloud_that_ends_at_its_start_says_why() -> None:
    cloud = started("import sys; print('starting', file=sys.stderr); sys.exit('no such model x')")
    with pytest.raises(DragonError, match="no such model x"):
        cloud.wait_ready()
    cloud.end()


def test_a_silent_end_is_told_by_its_exit_code() -> None:
    cloud = started("raise SystemExit(3)")
    with pytest.raises(DragonError, match="3"):
        cloud.wait_ready()
    cloud.end()


def test_a_cloud_that_writes_without_end_is_read_without_end() -> None:
    cloud = started(
        "import sys\nfor _ in range(20000): print('x' * 20, file=sys.stderr)\n"
        "print('listens on 127.0.0.1:1', file=sys.stderr)"
    )
    assert cloud.wait_ready() == 1
    cloud.end()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_process_ends_with_the_context_whatever_ends_it(error: type[BaseException]) -> None:
    with pytest.raises(error), cloud_process() as cloud:
        raise error
    with pytest.raises(ProcessLookupError):
        os.kill(cloud.pid, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_that_end_a_program_end_the_context_first(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended, cloud_process() as cloud:
        os.kill(os.getpid(), number)
    assert ended.value.code == 128 + number
    assert signal.getsignal(number) == before
    with pytest.raises(ProcessLookupError):
        os.kill(cloud.pid, 0)
