"""The backend of transformers on a GPU: its contract, exact bits, times, and a whole pair.

For a machine with CUDA, torch and transformers, and without a network (`scripts/bench/pack`). The
weights are random and made there. Each step is a process, `python -m scripts.bench.gpu STEP
PROCESSOR`, which prints its rows. If it fails or lasts too long, the next one runs.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.resources import usual_threads
from dragonrt.cli.options import option
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import Address
from dragonrt.node.process.composition import Loaded, load_model
from dragonrt.node.process.ending import exit_on_sigterm
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.service import comparison
from dragonrt.service.cloud_process import cloud_process
from dragonrt.service.comparison import LEADERLESS, SYNCHRONOUS, Measured
from dragonrt.testing.backend_contract import CHECKS, Subject, numbers
from scripts.bench.decode import CONTEXT, Program, Step, by_backend, by_transformers, timed
from scripts.lab.arena import emulated
from scripts.lab.harness import benchmark, progress
from scripts.lab.intervals import Row
from scripts.lab.model_sides import run

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Rows of a forward, or tokens of one row."""
STARTS = (37, 700)
"""Tokens of the rows before those that are compared bit by bit."""
REPEATS, TOKENS, ROUND_TRIP_S = 20, 24, 0.1
"""Of a forward; of an answer; of the pair's link."""
NUMBERS = ("bfloat16", "float32")
"""Number types. Times and the pair's cloud are of the first."""
STEPS = {
    "cuda": {"pair": 120, "0.1 B": 90, "0.5 B": 90, "1.5 B": 90, "8 B": 120, "llama.cpp": 300},
    "cpu": {"pair": 200, "tiny": 200, "llama.cpp": 300},
}
"""The pair, random models and a library, each with its most seconds."""
LONGEST_S = 450  # of all steps
LLAMA_SOURCE = Path(__file__).parents[2] / "llama.cpp.tar.gz"


@benchmark(
    {"step": "{step}", "result": "{result}", "seconds": "{seconds:.0f}"},
    {
        "model": "{model}",
        "on": "{on}",
        "numbers": "{numbers}",
        "contract": "{contract}",
        "exact tokens": "{exact_tokens}",
        "exact rows": "{exact_rows}",
    },
    {
        "model": "{model}",
        "rows x tokens": "{forward}",
        "dragonrt, ms": "{dragonrt[ms][median]:.2f}",
        "transformers, ms": "{transformers[ms][median]:.2f}",
        "ratio": "{ratio[ms][median]:.2f}",
        "bound, ms": "{bound[ms][median]:.2f}",
        "same token": "{same}",
    },
    {
        "pair": "{pair}",
        "method": "{method}",
        "tokens/s": "{tokens_per_s:.1f}",
        "first, ms": "{first_token_ms:.0f}",
        "then, ms": "{ms_between_tokens:.1f}",
        "accepted": "{accepted_device:.2f}/{accepted_cloud:.2f}",
        "equal": "{equal} of {answers}",
    },
    note="Contract: checks that hold. Exact: tokens of a row, or rows, with which a forward has "
    f"the bits of single steps. Times: rows x tokens behind {CONTEXT} tokens in {NUMBERS[0]}, "
    "medians of interleaved repeats; dragonrt mixes the rows as in an answer, transformers is its "
    "plain forward, and the bound is a copy of memory that moves as many bytes as the weights "
    f"have. Pair: the round trip is {1000 * ROUND_TRIP_S:.0f} ms, no side has documents, and both "
    "have the same random weights; equal are the texts of the synchronous method.",
)
def gpu(
    *,
    processor: Annotated[Literal["cuda", "cpu"], option("cpu: a tiny model, to try it.")] = "cuda",
) -> Iterator[Row]:
    """Yield the rows of each step, and whether it was measured."""
    end_s, command = time.monotonic() + LONGEST_S, (sys.executable, "-m", "scripts.bench.gpu")
    for step, most_s in STEPS[processor].items():
        progress(step)
        seconds = max(1, min(most_s, int(end_s - time.monotonic())))
        yield from bounded(step, seconds, *command, step, processor)


def bounded(step: str, seconds: int, *command: str) -> Iterator[Row]:
    """Yield the rows that a command prints within these seconds, and last a row about it."""
    start_s = time.monotonic()
    within = ("timeout", "--kill-after=10", str(seconds))
    ran = subprocess.run([*within, *command], capture_output=True, text=True, check=False)
    *whole, _ = ran.stdout.split("\n")
    yield from (json.loads(line) for line in whole if line.startswith("{"))
    last = ran.stderr.strip().rpartition("\n")[2]
    results = {0: "measured", 124: f"stopped after {seconds} s", 137: "killed"}
    result = results.get(ran.returncode, f"failed: {last}")
    yield {"step": step, "result": result, "seconds": time.monotonic() - start_s}


def model_rows(shape: str, processor: str) -> Iterator[Row]:
    """Yield what a random model of a shape keeps in each number type, and its times."""
    from dragonrt.backends.transformers_.backend import TransformersBackend, TransformersTokenizer
    from scripts.bench.random_models import random_model, tokenizer

    for kind in NUMBERS:
        plain = random_model(shape, kind, processor)
        backend = TransformersBackend(plain, TransformersTokenizer(tokenizer()), "random")
        model = LanguageModel(shape, backend)
        yield _kept(model, processor)
        if kind == NUMBERS[0]:
            yield from _times(plain, model)


def _kept(model: LanguageModel, processor: str) -> Row:
    """Return which checks of the contract hold, and which forwards have the bits of single ones."""
    import torch

    on, failed = Subject(model.backend), list[str]()
    for check in CHECKS:
        try:
            check(on)
        except Exception as error:  # a check may fail in any way
            failed.append(f"; {check.__name__}: {str(error).strip().partition(chr(10))[0]}")
    line = on.text(SIZES[-1], 1)

    def read(start: int, rows: int, size: int) -> NDArray[np.float32]:
        opened, count = on.opened([start] * rows), len(line) // rows
        blocks = [line[at : at + size] for at in range(0, count, size)]
        return np.concatenate([numbers(opened.extend_all(block)) for block in blocks])

    alone = {start: read(start, 1, 1) for start in STARTS}

    def exact(rows: int, size: int) -> bool:
        found = ((read(start, rows, size), wanted) for start, wanted in alone.items())
        return all((each == wanted[: len(each)]).all() for each, wanted in found)

    return {
        "model": model.name,
        "on": torch.cuda.get_device_name() if processor == "cuda" else processor,
        "engine": model.backend.info.engine,
        "numbers": model.dtype,
        "contract": f"{len(CHECKS) - len(failed)} of {len(CHECKS)}{''.join(failed)}",
        "exact_tokens": ", ".join(str(n) for n in SIZES[1:] if exact(1, n)) or "none",
        "exact_rows": ", ".join(str(n) for n in SIZES[1:] if exact(n, 1)) or "none",
    }


def _times(plain: Any, model: LanguageModel) -> Iterator[Row]:
    """Yield the times of forwards by the backend and by transformers, and of the bound."""
    by: dict[str, Program] = {
        "dragonrt": partial(by_backend, model),
        "transformers": partial(by_transformers, plain, usual_threads()),
        "bound": lambda *forward: _copy(plain),
    }
    text = np.random.default_rng(0).integers(1, model.vocabulary, CONTEXT + SIZES[-1]).tolist()
    for rows, size in [*product(SIZES, (1,)), *product((1,), SIZES[1:])]:
        found = timed(by, (text[:CONTEXT], text[CONTEXT : CONTEXT + size], rows), REPEATS)
        same = found["said"]["dragonrt"] == found["said"]["transformers"]
        yield {"model": model.name, "same": "yes" if same else "no"} | found


def _copy(plain: Any) -> Step:
    """Return a step that reads and writes as many bytes as a forward reads of the weights."""
    read = sum(each.numel() for each in plain.parameters())
    if not plain.config.tie_word_embeddings:  # of an embedding few rows are read
        read -= plain.get_input_embeddings().weight.numel()
    source = plain.get_input_embeddings().weight.new_empty(read // 2)
    target = source.clone()
    return lambda: int(target.copy_(source)[-1] == 0)  # waits for the copy


def pair_rows(processor: str) -> Iterator[Row]:
    """Yield what the answers of a cloud on the processor and a device on the CPU cost by method."""
    from scripts.bench.random_models import random_model, tokenizer

    shape, kind = "0.5 B" if processor == "cuda" else "tiny", NUMBERS[0]
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as directory:
        random_model(shape, kind, processor).save_pretrained(directory)
        tokenizer().save_pretrained(directory)
        with cloud_process(f"--on={processor}", f"--dtype={kind}", model=directory) as cloud:
            settings = SideSettings("device", directory, on="cpu")
            device = Loaded(settings, load_model(settings))
            found = run(_asked(device, cloud.wait_ready()), virtual=False)
    for method, answers in found.items():
        pairs = zip(answers, found[SYNCHRONOUS], strict=True)
        costs = comparison.costs(answers)
        yield costs | {
            "pair": f"{shape}: {kind} on {processor}, {device.model.dtype} on the device",
            "method": method.name,
            "tokens_per_s": 1000 / (costs["ms_per_token"] or np.inf),
            "answers": len(answers),
            "equal": sum(ours.tokens == truth.tokens for ours, truth in pairs),
        }


async def _asked(loaded: Loaded, port: int) -> Measured:
    """Return the answers to two questions by each method, over the link."""
    link, how = LinkProfile(latency_s=ROUND_TRIP_S / 2), DragonSettings(on_loss="wait")
    prompts = [each.text for each in bundled.questions()[:2]]
    question = Question(seed=1, sampler=Sampler(0.8), max_tokens=TOKENS)
    address = Address("127.0.0.1", port, emulate=emulated(link))
    async with comparison.connected(loaded, address) as device:
        return {
            method: await comparison.ask_each(device, prompts, question, method.settings(how))
            for method in (SYNCHRONOUS, LEADERLESS)
        }


def llama_rows(processor: str) -> Iterator[Row]:
    """Compile llama.cpp for the processor; yield what a bundled model keeps on it."""
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as name:
        with tarfile.open(LLAMA_SOURCE) as archive:
            archive.extractall(name, filter="data")
        configure = ["-S", name, "-B", f"{name}/build", "-DCMAKE_CUDA_ARCHITECTURES=native"]
        configure += [f"-DGGML_CUDA={'ON' if processor == 'cuda' else 'OFF'}"]
        configure += [f"-DLLAMA_BUILD_{part}=OFF" for part in ("COMMON", "APP")]
        build = ["--build", f"{name}/build", "--target=llama", f"--parallel={os.cpu_count()}"]
        for arguments in (configure, build):
            subprocess.run(["cmake", *arguments], check=True, stdout=sys.stderr)
        library = Path(name, "build", "bin", "libllama.so")
        settings = SideSettings("device", bundled.models()[0], llama_library=library)
        yield _kept(load_model(settings), processor)


if __name__ == "__main__":
    exit_on_sigterm()
    own = {"pair": pair_rows, "llama.cpp": llama_rows}
    for measured in own.get(sys.argv[1], partial(model_rows, sys.argv[1]))(sys.argv[2]):
        print(json.dumps(measured), flush=True)
