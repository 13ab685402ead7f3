"""`way`: the calls and files of both halves of a token: its decision, and the making of a draft.

The first half runs from a message's arrival to the token it decides, on both sides in this process
and in virtual time, on scripted models. It begins where the device's connection receives bytes, and
ends where the device records a decided token. The second half runs on a real model, from a Work
that a session is given to its result, in all threads; the mode's own handling is left out.
Calls are those of Python functions in `dragonrt`; `dragonrt.testing`, which stands for the machine,
is left out.
"""

import asyncio
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from types import FrameType

import numpy as np

import dragonrt
from dragonrt.backends.mixture import Weighing
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.modes.dragon.decision import Budget, Decision
from dragonrt.modes.dragon.drafts import Drafts
from dragonrt.modes.dragon.planner import Planner
from dragonrt.modes.dragon.settings import DragonResources, DragonSettings, DragonSetup
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.mode import Prepared
from dragonrt.modes.prefix import start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter.settings import SprinterSettings
from dragonrt.node.answers.backend_session import ForwardResult
from dragonrt.node.answers.model_session import ModelSession
from dragonrt.node.process.composition import load_model
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing import loop
from dragonrt.testing.scripted import Script
from dragonrt.traces.events import Record, TokenDecided
from dragonrt.wire.connection import Connection
from scripts.lab.harness import benchmark
from scripts.lab.intervals import Row
from scripts.lab.model_sides import worker
from scripts.lab.virtual_arena import Pace, linked, scripted

NOTE = (
    "Medians over the tokens of one answer that a message decides, at temperature 0.8. Means over "
    "the drafts of one answer of mode dragon, with two documents."
)
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
            self._now.append(_name(frame))

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
            sys.setprofile(way.profile)
            try:
                await arena.ask(question, settings)
            finally:
                sys.setprofile(None)

    loop.run(answer())
    return way.found


async def drafting(model: str, *, seed: int = 1, count: int = 40) -> Counter[str]:
    """Return how often each function was called in making so many drafts, after some others."""
    called, counts, here = Counter[str](), False, threading.get_ident()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            called[_name(frame)] += counts or threading.get_ident() != here

    loaded = load_model(SideSettings("device", model, "cpu"))
    documents = [loaded.document_kv(loaded.encode(text)) for text in ("Ink is blue.", "It rains.")]
    start, question = start_hash(seed), Question(seed=seed, sampler=Sampler(0.8), max_tokens=99)
    setup = DragonSetup(
        "device",
        question,
        DragonSettings(run_ahead=99),
        DragonResources(vocabulary=loaded.vocabulary),
    )
    planner = Planner(setup, Drafts(start, [], 99), Decision(setup))
    planner.prepared(Prepared(files=(0, 1)))
    cache = PrefixCache(
        partial(loaded.rows, documents, 150),
        loaded.encode("What is blue?"),
        start,
        Weighing(np.array([2.0, 1.0])),
    )
    drafts, before = 0, count // 2
    threading.setprofile(profile)
    async with worker(loaded.backend) as running:
        await running.read(cache.prefill)
        session = ModelSession(running, cache)
        sys.setprofile(profile)
        while drafts < before + count and (work := planner.wanted(Budget(99))) is not None:
            if drafts == before:
                called.clear()
            done: asyncio.Future[ForwardResult] = asyncio.get_running_loop().create_future()
            counts = True
            session.start(work, done.set_result)
            found = await done
            counts = False
            if work.span is not None:
                drafts += len(planner.computed(work.span, found.value, found.seconds))
        sys.setprofile(None)
        session.close()
    threading.setprofile(None)
    return called


def _name(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename[len(PACKAGE) + 1 :]}:{frame.f_code.co_qualname}"


@benchmark(
    {"mode": "{mode}", "calls": "{calls:.0f}", "files": "{files:.0f}"},
    {
        "a draft of": "{model}",
        "calls": "{draft_calls:.0f}",
        "of the backend": "{backend_calls:.0f}",
        "files": "{draft_files}",
    },
    note=NOTE,
)
def way(*, seed: int = 1, model: str = "dragon-draft") -> Iterator[Row]:
    """Count calls and files of each mode's way from a message to its token, and of a draft."""
    for mode, settings in FLOWS.items():
        found = ways(settings, seed=seed)
        files = [len({name.partition(":")[0] for name in each}) for each in found]
        yield {
            "mode": mode,
            "calls": median(map(len, found)),
            "files": median(files),
            "tokens": len(found),
        }
    count = 40
    called = asyncio.run(drafting(model, seed=seed, count=count))
    often = {name.partition(":")[0] for name, calls in called.items() if 2 * calls >= count}
    backend = (n for name, n in called.items() if re.match(r"backends/\w+/", name))
    yield {
        "model": model,
        "draft_calls": called.total() / count,
        "backend_calls": sum(backend) / count,
        "draft_files": len(often),
    }
