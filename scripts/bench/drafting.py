"""What drafts are worth: answers of mode speculative over the cloud's own stream, by the clock.

Two processes over an emulated link. Every question is answered by the cloud alone, which streams
its tokens, and with each draft. Texts are the same (SPEC 2). At temperature 0 others' programs
answer the same prompts, without a network: do their drafts leave their own texts as they are?
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
from cyclopts import Parameter

from dragonrt.cli.options import option
from dragonrt.errors import DragonError
from dragonrt.link.profile import LinkProfile
from dragonrt.link.units import parse_duration
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import DraftSource, SpeculativeSettings
from dragonrt.node.connections.endpoints import Address
from dragonrt.node.process.composition import complete_library, load_model
from dragonrt.node.process.local_side import LocalSide
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.cloud_process import cloud_process
from dragonrt.service.comparison import Given, connected
from retrieval.files import read_text
from scripts.bench.peers import Generated, LlamaServer, Peer, Transformers
from scripts.bench.question_sets import LARGEST, chosen, worlds
from scripts.lab.arena import RealArena, emulated
from scripts.lab.harness import benchmark, interval, progress
from scripts.lab.intervals import Row, grouped, paired
from scripts.lab.model_sides import run

STREAM = "none"
CHAT = 'user = "{document}{question}"\n'
"""The prompt of questions without documents: the model's own chat template."""


_WAY = {"asked": "{category}", "at": "{temperature}", "draft": "{draft}"}


@benchmark(
    _WAY
    | {
        "texts": "{same} of {questions}",
        "tokens": "{tokens}",
        "accepted": "{accepted:.2f}",
        "per verify": "{per_verify:.2f}",
    },
    _WAY
    | {
        "first, ms": "{first_ms:.0f}",
        "ms/token": "{between_ms:.1f}",
        "speed": interval("speed"),
        "after first": interval("speed_between"),
    },
    note="Draft none: the cloud streams its own tokens. Texts: equal to those that the same "
    "program makes without a draft. Accepted: of the drafted tokens that the cloud verified. Per "
    "verify: tokens that a verified block adds. ms/token: between tokens. Speed: the stream's time "
    "over this way's, whole answers and after the first token, with bootstrap 95 % intervals by "
    "question. Others' programs answer in one process without a network: transformers' own "
    "generate in bfloat16, llama.cpp's server with the same file and one thread.",
)
def drafting(
    file: Annotated[
        Path,
        Parameter(
            help="Articles with questions (JSON, as SQuAD's), which both sides index; or prompts "
            "by category (JSON lines, as Spec-Bench's), asked without documents."
        ),
    ],
    /,
    *,
    model: Annotated[str, option("The cloud's model.", default="smollm2")] = "smollm2",
    draft_model: Annotated[str, option("The device's.", default="smollm2-draft")] = "smollm2-draft",
    drafts: tuple[DraftSource, ...] = get_args(DraftSource),
    round_trip: Annotated[str, option("Of the link.", default="100ms")] = "100ms",
    temperatures: tuple[float, ...] = (0.0, 1.0),
    questions: Annotated[int, option("Of articles, or of each category.", default="40")] = 40,
    tokens: Annotated[int, option("Tokens of an answer.", default="64", low=1)] = 64,
    seed: Annotated[int, option("Draws the questions.", default="1", low=0)] = 1,
) -> Iterator[Row]:
    """Answer each question every way in turn; yield a row for each category and way."""
    prompts, documents = _asked(file, questions, seed), int(file.suffix == ".json")
    sampled = [
        Question(sampler=Sampler(at), max_tokens=tokens, documents=documents) for at in temperatures
    ]
    ways = {STREAM: SpeculativeSettings(block_tokens=0)}
    ways |= {name: SpeculativeSettings(draft=name) for name in drafts}
    link = emulated(LinkProfile(latency_s=parse_duration(round_trip) / 2))
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as name:
        folder = Path(name)
        side = SideSettings("device", model=draft_model, index=folder / "device")
        options = [f"--index={folder / 'cloud'}"]
        if documents:
            (world, *_) = worlds(file, folder / "documents", seed)
            side = replace(side, documents=(*world.device, *world.cloud))
            options += [f"--documents={each}" for each in side.documents]
        else:
            template = folder / "chat.toml"
            template.write_text(CHAT, encoding="utf-8")
            side = replace(side, index=None, prompt=template, adapter="none")
            options = [f"--prompt={template}", "--adapter=none"]
        loaded = load_model(side)
        library = complete_library(side, loaded)
        peers: list[Peer] = []
        if 0 in temperatures:
            for make in (Transformers, LlamaServer):
                peers.append(make(loaded, model, draft_model, adapted=library is not None))
        with cloud_process(*options, model=model) as cloud:
            address = Address("127.0.0.1", cloud.wait_ready(), emulate=link)

            async def answers() -> list[Row]:
                async with connected(side, loaded, library, address) as device:
                    arena = RealArena(device.side, device.connectors)
                    answering = partial(_answers, arena, peers, ways)
                    return [
                        row
                        for number, (category, prompt) in enumerate(prompts)
                        for question in sampled
                        for row in await answering(
                            replace(question, prompt=prompt, seed=number), category
                        )
                    ]

            rows = run(answers(), virtual=False)
    yield from _summaries(rows)


def _asked(file: Path, count: int, seed: int) -> list[tuple[str, str]]:
    """Return the category and the words of each question. Raises DragonError."""
    with tempfile.TemporaryDirectory() as name:
        if file.suffix == ".json":
            known = worlds(file, Path(name) / "documents", seed)[0].questions
            share = min(1.0, count / len(known))
            return [("answers", each.question) for each in chosen(known, share, seed)]
    try:
        lines = [json.loads(line) for line in read_text(file, LARGEST).splitlines()]
        found = grouped(lines, "category")
        return [
            (str(category), str(each["turns"][0]))
            for (category,), several in found.items()
            for each in several[:count]
        ]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise DragonError(f"{file} holds no prompts by category: {error!r}") from None


async def _answers(
    arena: RealArena,
    peers: Sequence[Peer],
    ways: Mapping[str, SpeculativeSettings],
    question: Question,
    category: str,
) -> list[Row]:
    """Answer a question every way, beginning with another one each time."""
    names, first = list(ways), question.seed % len(ways)
    given: dict[str, Given | Generated] = {}
    for name in names[first:] + names[:first]:
        (given[name],) = await arena.ask_each([question.prompt], question, ways[name])
    plain = dict.fromkeys(names, STREAM)
    if question.sampler.temperature == 0:
        tokens = _prompt(arena.side, question)
        for peer in peers:
            given |= {name: peer.answer(name, tokens, question) for name in peer.ways}
            plain |= dict.fromkeys(peer.ways, next(iter(peer.ways)))
    progress(f"question {question.seed}: {category}")
    return [
        _row(each, given[STREAM])
        | {"same": each.tokens == given[plain[name]].tokens}
        | {"category": category, "temperature": question.sampler.temperature, "draft": name}
        for name, each in given.items()
    ]


def _prompt(side: LocalSide, question: Question) -> list[int]:
    """Return the tokens of a question behind what is found for it."""
    tokens, model, library = list[int](), side.model, side.library
    if library is not None:
        for hit in library.find(question.prompt, question.documents):
            tokens += library.tokens(hit.chunk)
    return tokens + model.encode(model.prompt.question_text((), question.prompt))


def _row(given: Given | Generated, stream: Given | Generated) -> Row:
    counts = given.counts
    return {
        "tokens": len(given.tokens),
        "judged": counts.judged,
        "accepted_tokens": counts.accepted_tokens,
        "verified": counts.verified,
        "decoded": counts.decoded,
        "first_s": given.first_s,
        "seconds": given.seconds,
        "stream_s": stream.seconds,
        "stream_first_s": stream.first_s,
    }


def _ratio(stream: Any, seconds: Any, axis: int = 0) -> Any:
    return stream.sum(axis=axis) / np.maximum(seconds.sum(axis=axis), 1e-9)


def _summaries(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield each category's, and all together if there are several."""
    groups = grouped(rows, "temperature", "category", "draft")
    if len({row["category"] for row in rows}) > 1:
        for (temperature, draft), several in grouped(rows, "temperature", "draft").items():
            groups[temperature, "all", draft] = several
    for (temperature, category, draft), several in groups.items():
        column = {name: [row[name] for row in several] for name in several[0]}
        later = [
            (row["stream_s"] - row["stream_first_s"], row["seconds"] - row["first_s"])
            for row in several
        ]
        judged, verified = sum(column["judged"]), sum(column["verified"])
        yield {
            "category": category,
            "temperature": temperature,
            "draft": draft,
            "questions": len(several),
            "same": sum(column["same"]),
            "tokens": sum(column["tokens"]),
            "decoded": sum(column["decoded"]),
            "accepted": sum(column["accepted_tokens"]) / judged if judged else None,
            "per_verify": 1 + sum(column["accepted_tokens"]) / verified if verified else None,
            "first_ms": 1e3 * float(np.median(column["first_s"])),
            "between_ms": 1e3
            * sum(own for _, own in later)
            / max(1, sum(column["tokens"]) - len(several)),
            "speed": paired(_ratio, column["stream_s"], column["seconds"]).to_json(),
            "speed_between": paired(_ratio, *zip(*later, strict=True)).to_json(),
        }
