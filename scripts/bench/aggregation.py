"""What aggregation over a link costs, and what a first token waits for.

Both sides have generated documents (see `forms`), and half of the questions are about either's.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

from dragonrt.distributions import Distribution
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import Coupled
from dragonrt.service.cloud_process import cloud_process
from dragonrt.service.comparison import LEADERLESS, SYNCHRONOUS, MeasuredAnswer, Method
from dragonrt.side import SIDES, Side
from dragonrt.traces.events import SideReady
from dragonrt.traces.file import read_trace
from scripts.bench import forms
from scripts.bench.oracle import WAITS
from scripts.lab.arena import emulated
from scripts.lab.harness import benchmark, interval, progress
from scripts.lab.intervals import Row, estimate
from scripts.lab.model_sides import LoadedSide, document_reader, run

Ask = Callable[[int, Method, Sequence[Question]], list[MeasuredAnswer]]
"""Asks at a latency one way in ms."""
ONE_PROCESS, STORED = "one process", "2GB"
ONE_WAY_MS, FIRST_MS, TOKENS = (0, 100, 300), 50, 20
DOCUMENTS = {"one, or a near second": None, "two": 2}
PARTS = ("search", "reading", "question", "round trip", "rest")


@benchmark(
    {
        "way": "{way}",
        "one way, ms": "{latency_ms}",
        "tokens/s": interval("tokens_per_s", "median", 1),
        "first, ms": interval("first_ms", "median", 0),
        "over synchronous": "{over_synchronous:.2f}",
        "over one process": "{over_one:.2f}",
    },
    {
        "documents a side": "{documents}",
        "read before": "{read}",
        "first, ms": interval("first", "median", 0),
        **{name: f"{{{name}[median]:.0f}}" for name in PARTS},
    },
    note="Medians of questions. over: tokens/s over those of another way at that latency. One "
    "process has the documents of both sides, and all cores. In this table all documents were "
    f"read before. Parts of a first token are ms of the side that is ready last, at {FIRST_MS} ms "
    "one way: search is timed alone, reading computes or loads the KV of documents, question is "
    "the prompt behind them, and rest is what is left.",
)
def aggregation(
    *, model: str = "smollm2", documents: int = 300, questions: int = 12, seed: int = 64
) -> Iterator[Row]:
    """Yield first tokens, then each way over each link; there are so many documents a side."""
    world = forms.notes(seed, documents, documents, 0)
    some = world["questions"][:: 2 * documents // questions]
    asked = [Question(prompt=each["question"], seed=seed, max_tokens=TOKENS) for each in some]
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as folder:
        for side in SIDES:
            (Path(folder) / side).mkdir()
            for name, text in world[side].items():
                (Path(folder) / side / name).write_text(text, encoding="utf-8")
        for kv in ("0", STORED):  # what is stored once would be read in spite of a bound
            yield from _first_tokens(Path(folder), model, asked, kv)
        yield from _ways(Path(folder), model, asked)


def _ways(where: Path, model: str, asked: Sequence[Question]) -> Iterator[Row]:
    """Yield each way of answering from documents that were read before."""
    times = dict[tuple[str, int], list[tuple[float, float]]]()
    with _pair(where, model, STORED) as (_, ask):
        for latency_ms, method in product(ONE_WAY_MS, (SYNCHRONOUS, LEADERLESS)):
            progress(f"{method.name}, {latency_ms} ms")
            given = ask(latency_ms, method, asked)
            times[method.name, latency_ms] = [(each.first_s, each.seconds) for each in given]
    whole = _side(where, model, STORED, *SIDES)
    times[ONE_PROCESS, 0] = [_answered_here(whole, each) for each in asked]
    speeds = {
        key: estimate([asked[0].max_tokens / seconds for _, seconds in found])
        for key, found in times.items()
    }
    for key, speed in speeds.items():
        yield {
            "way": key[0],
            "latency_ms": key[1],
            "tokens_per_s": speed.to_json(),
            "first_ms": estimate([1e3 * first_s for first_s, _ in times[key]]).to_json(),
            "over_synchronous": speed.value / speeds[SYNCHRONOUS.name, key[1]].value,
            "over_one": speed.value / speeds[ONE_PROCESS, 0].value,
        }


def _first_tokens(where: Path, model: str, asked: Sequence[Question], kv: str) -> Iterator[Row]:
    """Yield the parts of first tokens; documents were read before if so much KV is stored."""
    trace, searches_s = where / f"trace {kv}", list[float]()
    questions = [replace(q, documents=k, max_tokens=1) for k in DOCUMENTS.values() for q in asked]
    with _pair(where, model, kv, f"--trace={trace}") as (device, ask):
        given = ask(FIRST_MS, LEADERLESS, questions)
        for each in questions:
            begun_s = time.perf_counter()
            device.library.find(each.prompt, each.documents)
            searches_s.append(time.perf_counter() - begun_s)
    ready = [each.event for each in read_trace(trace) if isinstance(each.event, SideReady)]
    found = [*map(_parts, given, ready, searches_s)]
    for number, name in enumerate(DOCUMENTS):
        some = found[number * len(asked) :][: len(asked)]
        medians = {part: estimate([1e3 * each[part] for each in some]) for part in some[0]}
        row = {"documents": name, "read": "yes" if kv == STORED else "no"}
        yield row | {part: each.to_json() for part, each in medians.items()}


def _parts(given: MeasuredAnswer, cloud: SideReady, search_s: float) -> dict[str, float]:
    """Return the seconds of a first token and of its parts, on the side that is ready last."""
    (own,) = (r.event for r in given.answer.records if isinstance(r.event, SideReady))
    sides = (own, 0.0), (cloud, given.answer.rtt_s)
    last, trip_s = max(sides, key=lambda each: each[0].load + each[0].prefill + each[1])
    parts = (search_s, last.load - search_s, last.prefill, trip_s)
    rest = given.first_s - sum(parts)
    return {"first": given.first_s, **dict(zip(PARTS, (*parts, rest), strict=True))}


def _side(where: Path, model: str, kv: str, *sides: Side) -> LoadedSide:
    """Load a side with the documents of `sides`, all read if so much KV can be stored."""
    index, documents = where / " ".join(("index", *sides)), tuple(where / each for each in sides)
    settings = SideSettings(sides[0], model=model, documents=documents, index=index, kv_cache=kv)
    return LoadedSide.load(settings if len(sides) > 1 else settings.with_peers_at(["127.0.0.1"]))


@contextmanager
def _pair(where: Path, model: str, kv: str, *options: str) -> Iterator[tuple[LoadedSide, Ask]]:
    """Yield a device, and what asks one question after another with a cloud's help."""
    device, cloud = (_side(where, model, kv, each) for each in SIDES)
    options += (f"--documents={where / 'cloud'}", f"--index={cloud.settings.index}")
    with cloud_process(*options, f"--kv-cache={kv}", model=model) as process:
        port = process.wait_ready()

        def ask(latency_ms: int, method: Method, asked: Sequence[Question]) -> list[MeasuredAnswer]:
            async def answers() -> list[MeasuredAnswer]:
                link = emulated(LinkProfile(latency_s=latency_ms / 1e3))
                async with device.connected(port, link) as arena:
                    return [await arena.ask(each, method.settings(WAITS)) for each in asked]

            return run(answers(), virtual=False)

        yield device, ask


def _answered_here(whole: LoadedSide, question: Question) -> tuple[float, float]:
    """Answer in this process; return the seconds to the first and to the last token."""
    begun_s, times_s = time.perf_counter(), list[float]()
    reader = document_reader(whole, replace(question, documents=2))  # as many as two sides
    rule = Coupled(Noise(question.seed), question.sampler)
    text = TokenPrefix(start_hash(question.seed))
    for step in range(question.max_tokens):
        p = rule.shape(reader.read(text.tokens, text.hashes, step)[0].p)
        text.append(rule.draft("device", step, Distribution.from_dense(p)))
        times_s.append(time.perf_counter() - begun_s)
    return times_s[0], times_s[-1]
