"""A cloud in a second process on loopback, for the demonstration and the benchmarks.

Imports nothing heavy, so that the second process can start before this one loads its own libraries.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType

from dragonrt.errors import DragonError

END_S = 5.0  # a cloud has for ending by itself before it is killed

_READY = re.compile(r"(?:listens on|answers at) \S+:(\d+)$")


class CloudProcess(subprocess.Popen[str]):
    """A child process that listens on a port; `lines` are its lines on stderr so far."""

    def __init__(self, command: Sequence[str]) -> None:
        environment = {n: each for n, each in os.environ.items() if not n.startswith("DRAGONRT_")}
        super().__init__(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # Its lines are parsed, not shown.
            env={**environment, "COLUMNS": "1000", "TERM": "dumb"},
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._ended = False
        self._changed = threading.Condition()
        # Its stderr is kept empty, so that it never waits for a reader.
        self._reader = threading.Thread(target=self._read, name="cloud's stderr", daemon=True)
        self._reader.start()

    def wait_ready(self) -> int:
        """Block until the process listens; return its port. Raises DragonError if it ends."""
        return int(self.wait_line(_READY)[1])

    def wait_line(self, pattern: "re.Pattern[str]") -> "re.Match[str]":
        """Wait for a line on stderr that matches. Raises DragonError if the process ends before."""

        def found() -> "re.Match[str] | None":
            return next(filter(None, map(pattern.search, self.lines)), None)

        with self._changed:
            self._changed.wait_for(lambda: self._ended or found() is not None)
            match = found()
        if match is None:
            last = self.lines[-1] if self.lines else f"exit code {self.wait()}"
            raise DragonError(f"the cloud process ended: {last}")
        return match

    def _read(self) -> None:
        for line in self.stderr or ():
            with self._changed:
                self.lines.append(line.rstrip())
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def end(self) -> None:
        """Terminate the process, kill it if it still runs after 5 s, and wait until it has gone."""
        self.terminate()
        try:
            self.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait()
        self._reader.join()
        if self.stderr is not None:
            self.stderr.close()


@contextmanager
def cloud_process(
    *options: str, model: str = "dragon-small", within: Sequence[str] = ()
) -> Iterator[CloudProcess]:
    """Run `dragonrt cloud --model MODEL OPTION…` on a free local port until the context ends.

    `within` is a command prefix that the process is started with, such as `ip netns exec NAME`.
    """
    command = ["dragonrt", "--config", os.devnull, "cloud", "--model", model]
    command += ["--host", "127.0.0.1", "--port", "0", *options]
    with listening_process(*command, within=within) as cloud:
        yield cloud


@contextmanager
def listening_process(*module: str, within: Sequence[str] = ()) -> Iterator[CloudProcess]:
    """Run `python -P -m MODULE OPTION…`, which listens on a port, until the context ends.

    `module` is a name and options, `within` a command prefix. It must print its address on stderr.
    DRAGONRT_* variables and Ctrl-C do not reach it; SIGTERM or SIGHUP to the caller ends both.
    """
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():  # no other can handle signals
            # The default would skip every finally.
            for number in (getattr(signal, n) for n in ("SIGTERM", "SIGHUP") if hasattr(signal, n)):
                stack.callback(signal.signal, number, signal.signal(number, _exit))
        cloud = CloudProcess([*within, sys.executable, "-P", "-m", *module])
        stack.callback(cloud.end)
        yield cloud


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
