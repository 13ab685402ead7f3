"""A signal ends a process even where Python loses the exception that its handler raises."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import signal, sys, time
from dragonrt.node.process.ending import exit_on_sigterm
class Destroyed:
    def __del__(self):
        signal.raise_signal(int(sys.argv[1]))
signal.signal(signal.SIGINT, signal.default_int_handler)
exit_on_sigterm()
Destroyed()
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_destructor_ends_the_process(number: signal.Signals) -> None:
    program = [sys.executable, "-c", PROGRAM, str(int(number))]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + number, "", "")
