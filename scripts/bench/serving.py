"""What people wait for over HTTP: the first token, the next ones, and how many are served in time.

Clients ask a `dragonrt serve` in a process of its own, one question after another, beside a cloud
in a third process; the same service alone, without a cloud; many devices, connections of this
process, ask one cloud; and one device asks it, alone and beside a greedy one with many sessions.
Beside a cloud that runs already, as that of `scripts/netns-lab`, the first of these is measured.
"""

import asyncio
import itertools
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
from openai import AsyncOpenAI
from typing_extensions import override

from dragonrt import bundled
from dragonrt.backends.model import AUTO
from dragonrt.cli.options import option
from dragonrt.errors import DragonError
from dragonrt.link.profile import LinkProfile, parse_duration
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.mode import Prediction
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import host_and_port
from dragonrt.node.process.composition import complete_library, load_model
from dragonrt.service.cloud_process import cloud_process, listening_process
from dragonrt.side import SIDES
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script, SimulatedModel, SimulatedPrediction
from scripts.lab.arena import Arena, RealArena, emulated
from scripts.lab.harness import benchmark, interval, progress
from scripts.lab.intervals import Row, estimate
from scripts.lab.model_sides import LoadedSide, sample_settings

FIRST_MS, NEXT_MS = 500.0, 100.0
"""What a served answer's first token may take, and those after it in the mean."""
WARM_S = 20.0
"""Until the sessions of another device have read their questions."""
DEVICES, GREEDY, LATENCY = 20, 32, "10ms"


@benchmark(
    {
        "served": "{way}",
        "clients": "{clients}",
        "first, ms": "{first_ms[0]:.0f}/{first_ms[1]:.0f}/{first_ms[2]:.0f}",
        "between, ms": "{next_ms[0]:.0f}/{next_ms[1]:.0f}/{next_ms[2]:.0f}",
        "ms/token": interval("ms_per_token", "median", 0),
        "answers/s": "{answers_per_s:.2f}",
        "in time": "{in_time} of {answers}",
        "goodput": "{goodput:.2f}",
    },
    note=f"first, between: p50/p95/p99 of the wait for an answer's first piece of text and for the "
    f"next ones. ms/token: median of answers. In time: answers whose first piece came within "
    f"{FIRST_MS:.0f} ms and whose others came {NEXT_MS:.0f} ms apart in the mean; goodput: those "
    "per second. Each client asks again as soon as it is answered.",
)
def serving(
    *,
    model: str = "smollm2",
    cloud: Annotated[str | None, option("Model of the cloud.", default="as the device")] = None,
    engine: Annotated[str, option("Engine of the cloud.")] = AUTO,
    clients: Annotated[tuple[int, ...], option("Clients.", default="1, 4, 16")] = (1, 4, 16),
    devices: Annotated[int, option("Devices of one cloud.", default=f"{DEVICES}")] = DEVICES,
    greedy: Annotated[int, option("Sessions of another device.", default=f"{GREEDY}")] = GREEDY,
    questions: Annotated[int, option("Number of questions.", default="48", low=1)] = 48,
    tokens: Annotated[int, option("Tokens of an answer.", default="32", low=1)] = 32,
    latency: Annotated[str, option("One-way latency.", default=LATENCY)] = LATENCY,
    at: Annotated[
        str | None, option("Running cloud to measure, over the link as it is.", kind="HOST:PORT")
    ] = None,
    key_file: Annotated[Path | None, option("File of the shared key.")] = None,
) -> Iterator[Row]:
    """Yield waits for every number of clients, with the cloud and without, and of devices."""

    def of_clients(way: str, *options: str) -> Iterator[Row]:
        own = [f"--model={model}", f"--documents={bundled.documents('device')}", "--seed=1"]
        with _served(*own, *options) as url:
            for count in clients:
                progress(f"{way}, {count} clients")
                yield {"way": way} | asyncio.run(_over_http(url, model, count, prompts, tokens))

    prompts = asked_texts(questions)
    own = (cloud, engine, devices, greedy, latency)
    if at is not None and own != (None, AUTO, DEVICES, GREEDY, LATENCY):
        raise DragonError(
            "--at asks a cloud that runs already, over its link, by clients alone: leave out "
            "--cloud, --engine, --devices, --greedy and --latency"
        )
    loaded = load_model(sample_settings("device", model))
    for side in SIDES:  # what is read once for all questions is no wait of the first ones
        complete_library(sample_settings(side, model), loaded)
    if at is not None:
        if (place := host_and_port(at)) is None:
            raise DragonError(f"--at takes HOST:PORT, such as 10.0.0.2:7070, not {at!r}")
        key = [] if key_file is None else [f"--key-file={key_file}"]
        yield from of_clients("together", f"--host={place[0]}", f"--port={place[1]}", *key)
        return
    options = [f"--documents={bundled.documents('cloud')}", "--device-rate=100000"]
    with cloud_process(*options, f"--engine={engine}", model=cloud or model) as process:
        for way, port in (("together", process.wait_ready()), ("alone", free_port())):
            yield from of_clients(way, f"--link={latency}", f"--port={port}")
        for count, others in ((devices, 0), (1, 0), (1, greedy)):
            way = f"devices, {others} sessions of another" if others else "devices"
            progress(f"{count} {way}")
            port = process.wait_ready()
            yield {"way": way} | asyncio.run(
                _devices(port, model, count, prompts, tokens, latency, others)
            )


@contextmanager
def _served(*options: str) -> Iterator[str]:
    command = ["dragonrt", "--config", os.devnull, "serve", "--http-port=0", *options]
    with listening_process(*command) as service:
        yield f"http://127.0.0.1:{service.wait_ready()}/v1"


async def _over_http(
    url: str, model: str, clients: int, prompts: Sequence[str], tokens: int
) -> Row:
    """Return the row of so many clients of a service."""
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=600) as client:

        async def ask(text: str) -> list[float]:
            loop, times = asyncio.get_running_loop(), list[float]()
            begun_s = loop.time()
            pieces = await client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": text}],
                max_tokens=tokens,
                stream=True,
            )
            async for piece in pieces:
                if piece.choices and piece.choices[0].delta.content:
                    times.append(loop.time() - begun_s)
            return times

        return await asked(prompts, [ask] * clients)


async def _devices(
    port: int, model: str, count: int, prompts: Sequence[str], tokens: int, link: str, greedy: int
) -> Row:
    """Return the row of so many devices of one cloud, each with its own connection.

    Another device has `greedy` sessions all the time.
    """
    question, settings = Question(seed=1, max_tokens=tokens), DragonSettings()

    async def ask(arena: RealArena, text: str) -> list[float]:
        (given,) = await arena.ask_each([text], question, settings)
        return [at - given.answer.asked_s for at, *_ in given.answer.decisions]

    async def go_on_greedily(arena: RealArena, seed: int) -> None:
        other = Arena(modelless(arena.side.vocabulary), arena.connectors)
        for number in itertools.count(seed):
            prompt = prompts[number % len(prompts)]
            await other.ask(Question(prompt=prompt, seed=number, max_tokens=400), settings)

    own = sample_settings("device", model)
    sides = [LoadedSide.load(own) for _ in range(count + bool(greedy))]
    async with AsyncExitStack() as stack:
        arenas = await connected(stack, sides, port, link)
        if greedy:
            arena = arenas.pop()
            beside = [asyncio.create_task(go_on_greedily(arena, seed)) for seed in range(greedy)]
            stack.push_async_callback(_end, beside)
            await asyncio.sleep(WARM_S)
        return await asked(prompts, [partial(ask, arena) for arena in arenas])


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(result, asyncio.CancelledError):
            raise DragonError(f"a greedy session ended: {result}")


# What `capacity` measures with, too.

Ask = Callable[[str], Awaitable[list[float]]]
"""Gives the times from a prompt to each piece of its answer, in seconds."""
OWN_TOKEN, OWN_SHARE, DECODE_S = 260, 0.9, 0.02
"""What a device without a model says at every step, with how much probability, and its time."""


@dataclass(frozen=True, slots=True)
class Constant(SimulatedModel):
    """Says the same always, in no time."""

    prediction: Prediction

    @override
    def predict(self, step: int, prefix_hash: int) -> Prediction:
        return self.prediction


def modelless(vocabulary: int, relevance: float = 0.0) -> SimulatedSide:
    """Return a device without a model; the larger `relevance`, the more drafts it rejects."""
    p = np.full(vocabulary, (1 - OWN_SHARE) / vocabulary, np.float32)
    p[OWN_TOKEN] += OWN_SHARE
    said = SimulatedPrediction(p, relevance, np.zeros(1, np.float32))
    return SimulatedSide(
        side="device",
        script=lambda _: Script(1, vocabulary=vocabulary),
        make_model=lambda *_: Constant(said),
        decode_s=DECODE_S,
    )


async def connected(
    stack: AsyncExitStack, devices: Sequence[LoadedSide], port: int, latency: str
) -> list[RealArena]:
    """Connect each device to the cloud on that port, over a link of that latency."""
    emulate = emulated(LinkProfile(latency_s=parse_duration(latency)))
    return [await stack.enter_async_context(each.connected(port, emulate)) for each in devices]


def free_port() -> int:
    """Return a port of loopback at which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def asked_texts(count: int) -> list[str]:
    """Return so many of the sample questions, again and again."""
    texts = [each.text for each in bundled.questions()]
    return [texts[number % len(texts)] for number in range(count)]


async def asked(prompts: Sequence[str], clients: Sequence[Ask]) -> Row:
    """Return the waits of clients that share the prompts, each asked one after another."""
    waiting, answers = iter(prompts), list[list[float]]()

    async def go_on(ask: Ask) -> None:
        for prompt in waiting:
            answers.append(await ask(prompt))

    await clients[0](prompts[0])  # what is loaded at the first question is no wait of the others
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    await asyncio.gather(*map(go_on, clients))
    return {"clients": len(clients), **waits(answers, loop.time() - begun_s)}


def waits(answers: Sequence[Sequence[float]], seconds: float) -> Row:
    """Return the numbers of a row, of the times to each answer's pieces, in seconds."""
    first = [1e3 * times[0] for times in answers]
    gaps = [1e3 * np.diff(times) for times in answers]
    means = [float(each.mean()) if each.size else 0.0 for each in gaps]
    in_time = sum(a <= FIRST_MS and b <= NEXT_MS for a, b in zip(first, means, strict=True))
    return {
        "answers": len(answers),
        "pieces_per_s": sum(map(len, answers)) / seconds,
        "first_ms": np.percentile(first, (50, 95, 99)).tolist(),
        "next_ms": np.percentile(np.concatenate(gaps), (50, 95, 99)).tolist(),
        "ms_per_token": estimate(means).to_json(),
        "answers_per_s": len(answers) / seconds,
        "in_time": in_time,
        "goodput": in_time / seconds,
    }
