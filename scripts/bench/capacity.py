"""What one cloud without a GPU gives to many devices, by engine, beside vLLM's own server.

The devices are in this process, and no model computes for them. The cloud has one core, and they
have the others. For each row of a session vLLM's own server gets a request over HTTP.
"""

import asyncio
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from openai import AsyncOpenAI
from transformers import AutoTokenizer

from dragonrt import bundled
from dragonrt.backends.llama_cpp.model_file import base_file
from dragonrt.cli.options import option
from dragonrt.errors import DragonError
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.service.cloud_process import cloud_process, listening_process
from scripts.bench.reference import transformers_model
from scripts.bench.serving import asked, asked_texts, connected, free_port, modelless
from scripts.lab.arena import Arena, RealArena
from scripts.lab.harness import benchmark, progress
from scripts.lab.intervals import Row
from scripts.lab.model_sides import LoadedSide, sample_settings

PLAIN = "plain vLLM"
ROWS = 2
"""Rows of a session: one a document."""
PASSAGE = 400
"""Characters of a document that the plain server reads before a question."""
DTYPE, KV_BYTES = "bfloat16", 1_500_000_000
"""Of vLLM."""
UNBOUND = ("env", "VLLM_CPU_OMP_THREADS_BIND=nobind")
"""The command that keeps vLLM's threads on the core of the process."""


@benchmark(
    {
        "served by": "{served}",
        "sessions": "{clients}",
        "tokens/s": "{pieces_per_s:.1f}",
        "of plain vLLM": "{of_plain}",
        "first, ms": "{first_ms[0]:.0f}/{first_ms[1]:.0f}",
        "between, ms": "{next_ms[0]:.0f}/{next_ms[1]:.0f}",
        "accepted": "{accepted}",
    },
    note=f"tokens/s: of all sessions. A session has {ROWS} rows, one a document; {PLAIN} gets as "
    "many requests, whose tokens count once. First, between: p50/p95 of the wait for the first "
    "token and for the next ones. Accepted: of the cloud's drafts.",
)
def capacity(
    *,
    engine: Annotated[
        tuple[str, ...], option("Engine of the model.", default="llama.cpp; vllm if installed")
    ] = ("llama.cpp", *(("vllm",) if find_spec("vllm") else ())),
    sessions: Annotated[tuple[int, ...], option("Sessions.", default="1, 4, 16")] = (1, 4, 16),
    questions: Annotated[int, option("Number of questions.", default="32", low=1)] = 32,
    tokens: Annotated[int, option("Tokens of an answer.", default="32", low=1)] = 32,
    relevance: Annotated[float, option("Relevance of the device's documents.", default="4")] = 4.0,
    latency: Annotated[str, option("One-way latency.", default="10ms")] = "10ms",
) -> Iterator[Row]:
    """Yield rates and waits for every engine and number of sessions, and of the plain server."""
    *others, last = sorted(os.sched_getaffinity(0))
    if not others:
        raise DragonError("the cloud needs a core of its own: run this on two cores or more")
    os.sched_setaffinity(0, others)
    within = ("taskset", "--cpu-list", str(last))
    prompts = asked_texts(questions)
    rates = dict[int, float]()
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as name:
        directory = Path(name, "model")
        if "vllm" in engine:
            transformers_model(bundled.SMOLLM2).save_pretrained(directory)
            file = base_file()
            AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(
                directory
            )
            with _plain_server(directory, within) as url:
                for count in sessions:
                    progress(f"{PLAIN}, {count} sessions")
                    row = asyncio.run(_plain(url, str(directory), prompts, count, tokens))
                    rates[count] = row["pieces_per_s"]
                    yield row | {"served": PLAIN, "of_plain": "1", "accepted": ""}
        settings = sample_settings("device", bundled.SMOLLM2)
        devices = [LoadedSide.load(settings) for _ in range(max(sessions))]
        for each in engine:
            options = [f"--documents={bundled.documents('cloud')}", f"--index={Path(name, each)}"]
            options += [f"--engine={each}", "--device-rate=100000"]
            if each == "vllm":
                options += [f"--dtype={DTYPE}", f"--engine-option=kv_cache_memory_bytes={KV_BYTES}"]
            model = str(directory) if each == "vllm" else bundled.SMOLLM2
            with cloud_process(*options, model=model, within=within) as cloud:
                port = cloud.wait_ready()
                for count in sessions:
                    progress(f"dragonrt on {each}, {count} sessions")
                    row = asyncio.run(
                        _together(port, devices[:count], latency, prompts, tokens, relevance)
                    )
                    share = f"{row['pieces_per_s'] / rates[count]:.2f}" if count in rates else ""
                    yield row | {"served": f"dragonrt, {each}", "of_plain": share}


async def _together(
    port: int,
    devices: Sequence[LoadedSide],
    latency: str,
    prompts: Sequence[str],
    tokens: int,
    relevance: float,
) -> Row:
    """Return the row of so many devices, each with a connection of its own."""
    side, accepted = modelless(devices[0].model.vocabulary, relevance), list[bool]()

    async def ask(arena: RealArena, prompt: str) -> list[float]:
        question = Question(prompt=prompt, seed=1, max_tokens=tokens, documents=ROWS)
        given = await Arena(side, arena.connectors).ask(question, DragonSettings())
        decisions = given.answer.decisions
        accepted.extend(event.cloud for _, event in decisions if event.cloud is not None)
        return [at - given.answer.asked_s for at, _ in decisions]

    async with AsyncExitStack() as stack:
        arenas = await connected(stack, devices, port, latency)
        row = await asked(prompts, [partial(ask, arena) for arena in arenas])
    return row | {"accepted": f"{sum(accepted) / len(accepted):.2f}"}


@contextmanager
def _plain_server(model: Path, within: Sequence[str]) -> Iterator[str]:
    """Run vLLM's own server of OpenAI's API; the engine's arguments are those of our backend."""
    port = str(free_port())
    command = ["vllm.entrypoints.openai.api_server", f"--model={model}", f"--port={port}"]
    command += [f"--dtype={DTYPE}", f"--kv-cache-memory-bytes={KV_BYTES}", "--enforce-eager"]
    with listening_process(*command, "--block-size=32", within=(*within, *UNBOUND)) as server:
        server.wait_line(re.compile("startup complete"))
        yield f"http://127.0.0.1:{port}/v1"


async def _plain(url: str, model: str, prompts: Sequence[str], sessions: int, tokens: int) -> Row:
    """Return the row of so many clients, each with a request for every document."""
    files = sorted(bundled.documents("cloud").iterdir())
    passages = [file.read_text("utf-8")[:PASSAGE] for file in files]
    loop = asyncio.get_running_loop()
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=600) as client:

        async def read(text: str) -> list[float]:
            begun_s, times = loop.time(), list[float]()
            pieces = await client.completions.create(
                model=model,
                prompt=text,
                max_tokens=tokens,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True, "return_token_ids": True},
            )
            async for piece in pieces:
                for choice in piece.choices:
                    said = (choice.model_extra or {})["token_ids"]
                    times += [loop.time() - begun_s] * len(said)
            return times

        async def ask(prompt: str) -> list[float]:
            """Return when all rows have each token, as a mixture needs them."""
            first = prompts.index(prompt)
            of = [passages[(first + row) % len(passages)] for row in range(ROWS)]
            rows = await asyncio.gather(*(read(f"{each}\n{prompt}\n") for each in of))
            return [max(times) for times in zip(*rows, strict=True)]

        return await asked(prompts, [ask] * sessions)
