"""A device as a service under faults in turn: a lying cloud, slow readers, a full disk and more.

Real processes: `dragonrt serve`, a cloud that is killed and started anew, and clients of the
Responses API. Every answer must end within a bound, what was streamed must be what is there at the
end, and the service's memory must not grow.
"""

import contextlib
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from dragonrt import bundled
from dragonrt.experiments.cloud_process import CloudProcess, cloud_process, listening_process
from dragonrt.timeouts import USUAL
from scripts.bench.report import bench_table, print_report
from scripts.bench.soak import resident_mb

NOTE = (
    "Bound: the seconds in which every answer must end, however its cloud behaves. Taken back: "
    "answers whose text at the end does not begin with what was streamed. Growth: resident memory "
    "of the service at the end of a phase over its beginning."
)
BOUND_S = USUAL.answer_s + USUAL.rejoin_s + 10.0
MODEL = "dragon-small"
TOGETHER = 'dragonrt_answers_together_total{others="all"}'
CLIENTS = 4
SLOW_READERS = 8
SAMPLES = 20


@dataclass
class Phase:
    """What was seen of one fault."""

    name: str
    answers: int = 0
    together: int = 0
    failed: list[str] = field(default_factory=list)
    taken_back: int = 0
    seconds: list[float] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)


@dataclass
class Service:
    """`dragonrt serve` and the port that its clouds are at."""

    process: CloudProcess
    port: int
    cloud_port: int
    notes: Path

    def ask(self, question: str, phase: Phase) -> None:
        """One streamed answer, noted in `phase`."""
        began_s = time.monotonic()
        body = {"model": MODEL, "input": question, "stream": True, "max_output_tokens": 8}
        shown, final = "", None
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND_S)
            with contextlib.closing(connection):
                headers = {"Content-Type": "application/json"}
                connection.request("POST", "/v1/responses", json.dumps(body), headers)
                response = connection.getresponse()
                if response.status != 200:
                    raise ValueError(f"{response.status} {response.read(300)!r}")
                while line := response.readline():
                    if not line.startswith(b"data: {"):
                        continue
                    event = json.loads(line[6:])
                    if event["type"] == "response.output_text.delta":
                        shown += event["delta"]
                    elif event["type"] in ("response.completed", "response.incomplete"):
                        final = event["response"]["output"][0]["content"][0]["text"]
            if final is None:
                raise ValueError("the stream ended without an end of the answer")
            phase.taken_back += not final.startswith(shown)
        except (OSError, ValueError, http.client.HTTPException, KeyError) as error:
            phase.failed.append(f"{type(error).__name__}: {error}")
        phase.answers += 1
        phase.seconds.append(time.monotonic() - began_s)

    def metric(self, name: str) -> float:
        """The sum of a metric's samples; 0 where there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND_S)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


Fault = Callable[[Service], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def calm(service: Service) -> Iterator[None]:
    """An honest cloud and no fault."""
    with _honest(service):
        yield


@contextlib.contextmanager
def lying(service: Service) -> Iterator[None]:
    """A cloud that forces a beginning and reads how the device goes on."""
    module = ("scripts.bench.lying_cloud", str(service.cloud_port), MODEL)
    with listening_process(*module) as cloud:
        cloud.wait_ready()
        yield


@contextlib.contextmanager
def slow_readers(service: Service) -> Iterator[None]:
    """Clients that ask for long answers and never read them."""
    with _honest(service), contextlib.ExitStack() as stack:
        for _ in range(SLOW_READERS):
            client = socket.create_connection(("127.0.0.1", service.port))
            stack.callback(client.close)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            body = json.dumps({"model": MODEL, "input": "What is a bee?", "stream": True}).encode()
            head = f"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
        yield


@contextlib.contextmanager
def dying_watcher(service: Service) -> Iterator[None]:
    """The documents vanish and come back with one more file, again and again."""
    away = service.notes.with_name("away")

    def disturb(over: threading.Event) -> None:
        number = 0
        while not over.wait(3.0):
            number += 1
            service.notes.rename(away)
            over.wait(1.0)
            away.rename(service.notes)
            (service.notes / f"note{number}.txt").write_text(f"Note {number} is about bees.\n")

    with _honest(service), _disturbed(disturb):
        yield


@contextlib.contextmanager
def full_disk(service: Service) -> Iterator[None]:
    """No file of the service can grow: each write fails."""
    pid, what = service.process.pid, resource.RLIMIT_FSIZE
    soft, hard = resource.prlimit(pid, what)
    with _honest(service):
        resource.prlimit(pid, what, (0, hard))
        try:
            (service.notes / "late.txt").write_text("A note that finds no room in the index.\n")
            yield
        finally:
            resource.prlimit(pid, what, (soft, hard))


@contextlib.contextmanager
def killed(service: Service) -> Iterator[None]:
    """A cloud that is killed without a word every few seconds and started again."""

    def disturb(over: threading.Event) -> None:
        while not over.is_set():
            with _honest(service) as cloud:
                over.wait(4.0)
                os.kill(cloud.pid, signal.SIGKILL)

    with _disturbed(disturb):
        yield


@contextlib.contextmanager
def _disturbed(disturb: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `disturb` in a thread until the context ends, which sets its event."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        disturbing = pool.submit(disturb, over)
        try:
            yield
        finally:
            over.set()
            disturbing.result()


@contextlib.contextmanager
def _honest(service: Service) -> Iterator[CloudProcess]:
    options = ("--documents", str(bundled.documents("cloud")), "--device-rate", "1000")
    with cloud_process(*options, "--port", str(service.cloud_port)) as cloud:
        cloud.wait_ready()
        yield cloud


PHASES: dict[str, Fault] = {
    "calm": calm,
    "lying cloud": lying,
    "slow readers": slow_readers,
    "dying watcher": dying_watcher,
    "full disk": full_disk,
    "killed cloud": killed,
    "calm again": calm,
}


def bench_faults(*, output: Console, messages: Console, answers: int = 2000, seed: int = 1) -> None:
    """So many answers, the same part of them under each fault."""
    texts = [each.text for each in bundled.questions()]
    found: list[Phase] = []
    with tempfile.TemporaryDirectory() as home, messages.status("") as status:
        for name, disturbed in _phases(Path(home), seed, status.update):
            phase = Phase(name)
            found.append(phase)
            with disturbed as service, ThreadPoolExecutor(CLIENTS) as clients:
                together = service.metric(TOGETHER)
                part = -(-answers // len(PHASES))
                for sample in range(SAMPLES):
                    numbers = range(part * sample // SAMPLES, part * (sample + 1) // SAMPLES)
                    asked = [f"{texts[n % len(texts)]} ({n})" for n in numbers]
                    list(clients.map(service.ask, asked, [phase] * len(asked)))
                    phase.resident.append(resident_mb(str(service.process.pid)))
                    status.update(f"{name}: {phase.answers} answers, {len(phase.failed)} failed")
                phase.together = round(service.metric(TOGETHER) - together)
    table = bench_table("fault", "answers", "together", "failed", "taken back", "longest", "growth")
    results = [_result(phase) for phase in found]
    for each in results:
        table.add_row(
            each["fault"],
            *(str(each[name]) for name in ("answers", "together", "failed", "taken_back")),
            f"{each['longest_s']:.1f} s",
            f"{each['growth_mb']:+.1f} MB",
        )
    print_report(output, "faults", table, results, seed=seed, note=f"{NOTE} Bound: {BOUND_S:g} s.")


def _phases(
    home: Path, seed: int, on_status: Callable[[str], None]
) -> Iterator[tuple[str, contextlib.AbstractContextManager[Service]]]:
    """The faults in turn, each as what makes the service suffer from it."""
    notes = home / "notes"
    shutil.copytree(bundled.documents("device"), notes)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        cloud_port = free.getsockname()[1]
    command: tuple[str, ...] = (
        "dragonrt",
        "--config",
        os.devnull,
        "serve",
        "--port",
        str(cloud_port),
    )
    command += ("--http-port", "0", "--seed", str(seed), "--model", MODEL, "--watch")
    command += ("--documents", str(notes), "--index", str(home / "index"))
    command += ("--disclose", "answer", "--uploads", str(notes / "dropped"))
    on_status("starting the service")
    with listening_process(*command) as process:
        port = process.wait_ready()
        service = Service(process, port, cloud_port, notes)

        @contextlib.contextmanager
        def suffering(fault: Fault) -> Iterator[Service]:
            with fault(service):
                yield service

        for name, fault in PHASES.items():
            on_status(f"{name}: starting the cloud")
            yield name, suffering(fault)


def _result(phase: Phase) -> dict[str, Any]:
    half = len(phase.resident) // 2
    early, late = np.mean(phase.resident[half : half + 3]), np.mean(phase.resident[-3:])
    return {
        "fault": phase.name,
        "answers": phase.answers,
        "together": phase.together,
        "failed": len(phase.failed),
        "failures": sorted(set(phase.failed))[:5],
        "taken_back": phase.taken_back,
        "longest_s": round(max(phase.seconds), 2),
        "growth_mb": round(float(late - early), 1),
        "resident_mb": [round(each, 1) for each in phase.resident],
    }
