"""`way`: the calls and files of the program from a message's arrival to the token it decides.

Both sides run in this process and in virtual time, on scripted models. A way begins where the
device's connection receives bytes, and ends where the device records a decided token. Calls are
those of Python functions in `dragonrt`; `dragonrt.testing`, which stands for the machine, is left
out.
"""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import FrameType

import dragonrt
from dragonrt.modes.question import Question
from dragonrt.modes.settings import (
    DragonSettings,
    FederatedSettings,
    Settings,
    SpeculativeSettings,
    SprinterSettings,
)
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing import loop
from dragonrt.testing.scripted import PrefixVerifier, Script
from dragonrt.traces.events import Record, TokenDecided
from dragonrt.wire.connection import Connection
from scripts.bench.harness import benchmark
from scripts.papers.intervals import Row
from scripts.papers.virtual_arena import Pace, linked, scripted

NOTE = "Medians over the tokens of one answer that a message decides, at temperature 0.8."
PACKAGE = str(Path(dragonrt.__file__).parent)
TESTING = str(Path(PACKAGE, "testing"))
FLOWS: dict[str, Settings] = {
    "dragon": DragonSettings(),
    "speculative": SpeculativeSettings(),
    "federated": FederatedSettings(),
    "sprinter": SprinterSettings(),
}
PACE = Pace(device_s=0.01, cloud_s=0.03, rtt_s=0.1)
"""The device waits for its cloud, whose messages decide."""


@dataclass(slots=True)
class Way:
    """Names of the functions that were called, `module:function`, for each way."""

    found: list[list[str]] = field(default_factory=list)
    _now: list[str] | None = None

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        """Implements what `sys.setprofile` calls."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        if code is Connection.receive_data.__code__:
            of_device = frame.f_locals["self"].peer.role == "cloud"
            self._now = [] if of_device else None
        if self._now is not None and not code.co_filename.startswith(TESTING):
            self._now.append(f"{code.co_filename[len(PACKAGE) + 1 :]}:{code.co_qualname}")

    def record(self, record: Record) -> None:
        """Implements Sink of the device: a decided token ends the way."""
        if isinstance(record.event, TokenDecided) and self._now is not None:
            self.found.append(self._now)
            self._now = None


def ways(settings: Settings, *, seed: int = 1, tokens: int = 60) -> list[list[str]]:
    """Return the functions called on the way of each token that a message decides."""
    way, script = Way(), Script(seed, vocabulary=64, stop=0.0)
    question = Question(prompt="q", seed=seed, sampler=Sampler(0.8), max_tokens=tokens)

    async def answer() -> None:
        device = scripted("device", script, PACE.device_s, (way.record,))
        cloud = scripted("cloud", script, PACE.cloud_s)
        async with linked(device, [cloud], PACE.link) as arena:
            await asyncio.sleep(1.0)  # the handshake is over
            trained = {"verifier": PrefixVerifier()} if settings.verifies_with else {}
            sys.setprofile(way.profile)
            try:
                await arena.ask(question, settings, **trained)
            finally:
                sys.setprofile(None)

    loop.run(answer())
    return way.found


@benchmark({"mode": "{mode}", "calls": "{calls:.0f}", "files": "{files:.0f}"}, note=NOTE)
def way(*, seed: int = 1) -> Iterator[Row]:
    """Count calls and files of each mode's way from a message to its token."""
    for mode, settings in FLOWS.items():
        found = ways(settings, seed=seed)
        files = [len({name.partition(":")[0] for name in each}) for each in found]
        yield {
            "mode": mode,
            "calls": median(map(len, found)),
            "files": median(files),
            "tokens": len(found),
        }
