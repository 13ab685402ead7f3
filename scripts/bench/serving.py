"""What people wait for over HTTP: the first token, the next ones, and how many are served in time.

Clients ask a `dragonrt serve` in a process of its own, one question after another, beside a cloud
in a third process; the same service alone, without a cloud; many devices, connections of this
process, ask one cloud; and one device asks it, alone and beside a greedy one with many sessions.
Beside a cloud that runs already, as that of `scripts/netns-lab`, the first of these is measured.
"""

import asyncio
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
from openai import AsyncOpenAI

from dragonrt import bundled
from dragonrt.backends.engines import AUTO
from dragonrt.cli.options import option
from dragonrt.errors import DragonError
from dragonrt.link.profile import LinkProfile, parse_duration
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.answers.client_session import ClientSession
from dragonrt.node.connections.addresses import host_and_port
from dragonrt.node.process.composition import complete_library, load_model
from dragonrt.service.cloud_process import cloud_process, listening_process
from dragonrt.side import SIDES
from scripts.bench.capacity import free_port, modelless
from scripts.lab.arena import RealArena, emulated
from scripts.lab.harness import benchmark, interval, progress
from scripts.lab.intervals import Row, estimate
from scripts.lab.sample_sides import LoadedSide, sample_settings

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
    cloud: Annotated[str | None, option("What the cloud runs.", default="as the device")] = None,
    engine: Annotated[str, option("What runs it there.")] = AUTO,
    clients: Annotated[tuple[int, ...], option("At once.", default="1, 4, 16")] = (1, 4, 16),
    devices: Annotated[int, option("At once, of one cloud.", default=f"{DEVICES}")] = DEVICES,
    greedy: Annotated[int, option("Sessions of another device.", default=f"{GREEDY}")] = GREEDY,
    questions: Annotated[int, option("Of all of them.", default="48", low=1)] = 48,
    tokens: Annotated[int, option("Tokens of an answer.", default="32", low=1)] = 32,
    latency: Annotated[str, option("One way to the cloud.", default=LATENCY)] = LATENCY,
    at: Annotated[
        str | None,
        option("Clients beside a cloud that runs already, over a link as it is.", kind="HOST:PORT"),
    ] = None,
    key_file: Annotated[Path | None, option("File with the key shared with it.")] = None,
) -> Iterator[Row]:
    """Yield waits for every number of clients, with the cloud and without, and of devices."""

    def of_clients(way: str, *options: str) -> Iterator[Row]:
        own = [f"--model={model}", f"--documents={bundled.documents('device')}", "--seed=1"]
        with _served(*own, *options) as url:
            for count in clients:
                progress(f"{way}, {count} clients")
                asked = asyncio.run(_asked(url, model, count, questions, tokens))
                yield {"way": way, "clients": count, **waits(*asked)}

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
            asked = asyncio.run(
                _devices(process.wait_ready(), model, count, questions, tokens, latency, others)
            )
            yield {"way": way, "clients": count, **waits(*asked)}


@contextmanager
def _served(*options: str) -> Iterator[str]:
    command = ["dragonrt", "--config", os.devnull, "serve", "--http-port=0", *options]
    with listening_process(*command) as service:
        yield f"http://127.0.0.1:{service.wait_ready()}/v1"


async def _asked(
    url: str, model: str, clients: int, questions: int, tokens: int
) -> tuple[list[list[float]], float]:
    """Return the times from a question to each piece of its answer, and seconds of all."""
    texts = [each.text for each in bundled.questions()]
    waiting, loop = iter(range(questions)), asyncio.get_running_loop()
    answers: list[list[float]] = []
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=600) as client:

        async def ask(text: str) -> list[float]:
            asked, times = loop.time(), list[float]()
            pieces = await client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": text}],
                max_tokens=tokens,
                stream=True,
            )
            async for piece in pieces:
                if piece.choices and piece.choices[0].delta.content:
                    times.append(loop.time() - asked)
            return times

        async def go_on() -> None:
            for number in waiting:
                answers.append(await ask(texts[number % len(texts)]))

        await ask(texts[0])  # what is loaded at the first question is no wait of the others
        begun = loop.time()
        await asyncio.gather(*(go_on() for _ in range(clients)))
        return answers, loop.time() - begun


async def _go_on_greedily(arena: RealArena, texts: Sequence[str], seed: int) -> None:
    """Have one long answer after another made by a device whose own model takes no time."""
    side = modelless(arena.side.vocabulary)
    settings = DragonSettings()
    for number in itertools.count(seed):
        question = Question(prompt=texts[number % len(texts)], seed=number, max_tokens=400)
        resources = arena.resources(settings)
        await ClientSession(
            side, arena.connectors, question, settings, resources, lambda record: None
        ).ask()


async def _devices(
    port: int, model: str, devices: int, questions: int, tokens: int, latency: str, greedy: int
) -> tuple[list[list[float]], float]:
    """Return the same of so many devices of one cloud, each with its own connection.

    Another device has `greedy` sessions all the time.
    """
    count = devices + bool(greedy)
    sides = [LoadedSide.load(sample_settings("device", model)) for _ in range(count)]
    emulate = emulated(LinkProfile(latency_s=parse_duration(latency)))
    texts, loop = [each.text for each in bundled.questions()], asyncio.get_running_loop()
    waiting, question = iter(range(questions)), Question(seed=1, max_tokens=tokens)
    answers: list[list[float]] = []
    async with AsyncExitStack() as stack:
        arenas = [
            await stack.enter_async_context(device.connected(port, emulate)) for device in sides
        ]

        async def go_on(arena: RealArena) -> None:
            for number in waiting:
                text = texts[number % len(texts)]
                (given,) = await arena.ask_each([text], question, DragonSettings())
                made = given.answer
                answers.append([at - made.asked_s for at, *_ in made.decisions])

        if greedy:
            other = arenas.pop()
            beside = [
                asyncio.create_task(_go_on_greedily(other, texts, seed)) for seed in range(greedy)
            ]
            stack.push_async_callback(_end, beside)
            await asyncio.sleep(WARM_S)
        begun = loop.time()
        await asyncio.gather(*map(go_on, arenas))
        return answers, loop.time() - begun


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(result, asyncio.CancelledError):
            raise DragonError(f"a greedy session ended: {result}")


def waits(answers: Sequence[Sequence[float]], seconds: float) -> Row:
    """Return the numbers of a row, of the times to each answer's pieces, in seconds."""
    first = [1e3 * times[0] for times in answers]
    gaps = [1e3 * np.diff(times) for times in answers]
    means = [float(each.mean()) if each.size else 0.0 for each in gaps]
    in_time = sum(a <= FIRST_MS and b <= NEXT_MS for a, b in zip(first, means, strict=True))
    return {
        "answers": len(answers),
        "first_ms": np.percentile(first, (50, 95, 99)).tolist(),
        "next_ms": np.percentile(np.concatenate(gaps), (50, 95, 99)).tolist(),
        "ms_per_token": estimate(means).to_json(),
        "answers_per_s": len(answers) / seconds,
        "in_time": in_time,
        "goodput": in_time / seconds,
    }
