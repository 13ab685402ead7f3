"""`python -m scripts.campaign.soak SECONDS`: a cloud that lies, and a service that is restarted.

Chats with `dragonrt serve` over notes, each with a canary (secret words), one answer after another.
The cloud forces the words before a canary, and leaves in the middle of every fifth answer; the
service is restarted after every twentieth, at the other disclosure level. The chats continue.
"""

import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from dragonrt.backends.model import LanguageModel
from dragonrt.modes.question import Question
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.service.cloud_process import listening_process
from scripts.campaign.liar import Leading, LyingCloud, lying_cloud

THINGS = {
    "printer": "plum otter",
    "bicycle": "silver anchor",
    "ferry": "cedar button",
    "piano": "amber kettle",
    "tent": "copper willow",
    "ladder": "velvet pigeon",
    "stove": "crimson ladle",
    "camera": "ivory thistle",
    "violin": "golden badger",
    "lamp": "marble falcon",
}
"""What notes are about, and their canaries."""
CANARY = " The canary word of this note is"
MODEL, TOKENS = "dragon-small", 20
A_LIFE, A_STAY = 20, 5
"""Answers of one process of the service, and of the cloud before it leaves."""
LEVELS = (Disclosure.ANSWER, Disclosure.REDACTED)
LIMIT_S = 60.0
"""Of one answer, and of a cloud that is dialled again."""


def write_notes(folder: Path) -> None:
    """Write a note about each of THINGS, with its canary, to a new folder."""
    folder.mkdir()
    for thing, words in THINGS.items():
        text = f"Note about the {thing}. The {thing} must be paid in May.{CANARY} {words}."
        (folder / f"{thing}.txt").write_text(text)


def asked_of(thing: str) -> str:
    """Return a question about `thing` whose answer is in its note, and is not the canary."""
    return f"When must the {thing} be paid?"


def liar(model: LanguageModel) -> Leading:
    """Return a lying cloud's model, which forces the words before a canary, then nothing."""
    heaviest = 1 / Question().relevance_temperature
    return Leading(model.encode(CANARY), 1.0, heaviest, heaviest)


def told(model: LanguageModel, cloud: LyingCloud) -> list[str]:
    """Return the canaries that reached the cloud, in texts or as tokens."""
    heard = "\n".join([*cloud.heard.texts, model.decode(cloud.heard.tokens)])
    return [words for words in THINGS.values() if words in heard]


@dataclass(slots=True)
class Service:
    """A running `dragonrt serve`: its process id, and an HTTP client for it."""

    client: httpx2.AsyncClient
    pid: int

    @property
    def resident_mib(self) -> int:
        """Return the resident memory of the service's process in MiB."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") // 2**20


@asynccontextmanager
async def serving(
    folder: Path, cloud: LyingCloud, level: Disclosure, *options: str
) -> AsyncIterator[Service]:
    """Run `dragonrt serve` over the notes in `folder`, with this cloud, until the context ends."""
    command = ["dragonrt", "--config", os.devnull, "serve", "--model", MODEL]
    command += ["--documents", str(folder / "notes"), "--index", str(folder / "index")]
    command += ["--http-port", "0", "--disclose", level, "--documents-per-side", "1"]
    command += ["--seed", "3", "--max-tokens", str(TOKENS), *options]
    command += ["--host", f"127.0.0.1:{cloud.port}"]
    with listening_process(*command) as process:
        url = f"http://127.0.0.1:{await asyncio.to_thread(process.wait_ready)}"
        async with httpx2.AsyncClient(base_url=url, timeout=LIMIT_S) as client:
            yield Service(client, process.pid)


@dataclass(slots=True)
class Soak:
    """Counts of a soak test; `memory` has, per process of the service, MiB at first and at last."""

    answers: int = 0
    lives: int = 0
    left: int = 0
    carried: int = 0
    slowest_s: float = 0.0
    memory: list[tuple[int, int]] = field(default_factory=list)

    async def life(
        self, folder: Path, cloud: LyingCloud, level: Disclosure, until_s: float, lead: int
    ) -> None:
        """Run the service for A_LIFE answers, or until `until_s`. RuntimeError if one fails."""
        self.lives += 1
        async with serving(folder, cloud, level, "--codec", "topk:64:residual") as service:
            first = 0
            for number, thing in zip(range(A_LIFE), itertools.cycle(THINGS), strict=False):
                if time.monotonic() > until_s:
                    break
                async with asyncio.timeout(LIMIT_S):
                    await cloud.present.wait()
                leaves = number % A_STAY == A_STAY - 1
                cloud.leaves_after = lead if leaves else None
                begun_s = time.monotonic()
                await self._ask(service.client, thing)
                self.slowest_s = max(self.slowest_s, time.monotonic() - begun_s)
                self.left += leaves and cloud.leaves_after is None
                first = first or service.resident_mib
            self.memory.append((first, service.resident_mib))

    async def _ask(self, client: httpx2.AsyncClient, thing: str) -> None:
        history = self._talks.setdefault(thing, [])
        history.append({"role": "user", "content": asked_of(thing)})
        body = {"model": MODEL, "messages": history[-5:]}
        answer = await client.post("/v1/chat/completions", json=body)
        if answer.status_code != httpx2.codes.OK:
            raise RuntimeError(f"answer {self.answers}: {answer.status_code} {answer.text}")
        text = answer.json()["choices"][0]["message"]["content"]
        history.append({"role": "assistant", "content": text})
        self.carried += THINGS[thing] in text
        self.answers += 1

    _talks: dict[str, list[dict[str, str]]] = field(default_factory=dict)


async def soak(seconds: float) -> int:
    """Run for `seconds` and print counts; return the number of canaries that reached the cloud."""
    model, done, until_s = LanguageModel.load(MODEL, "cpu"), Soak(), time.monotonic() + seconds
    says = liar(model)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_notes(folder / "notes")
        async with lying_cloud(model, says) as cloud:
            for level in itertools.cycle(LEVELS):
                if time.monotonic() > until_s:
                    break
                await done.life(folder, cloud, level, until_s, len(says.begins))
                cloud.present.clear()
            found = told(model, cloud)
    print(
        f"{done.answers} answers, {done.carried} with a canary of which {len(found)} were told; "
        f"{done.lives} lives of the service, the cloud left {done.left} times in an answer; "
        f"slowest answer {done.slowest_s:.1f} s; at most "
        f"{max(last - first for first, last in done.memory)} MiB more at the end of a life"
    )
    return len(found)


if __name__ == "__main__":
    sys.exit(bool(asyncio.run(soak(float(sys.argv[1])))))
