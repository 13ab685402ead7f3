"""Compare methods of decoding: ask each the same questions, measure its costs, and report them."""

import asyncio
import os
import platform
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

from rich.table import Table

from dragonrt import __version__, bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.control.scheduler import Aggregator
from dragonrt.errors import DragonError
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.answers import client_session
from dragonrt.node.connections.addresses import Address, Member
from dragonrt.node.connections.link_probe import probe
from dragonrt.node.process import programs
from dragonrt.node.process.composition import Loaded
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.sampling.rules import Algorithm1, Coupled
from dragonrt.service.answer import Answer
from dragonrt.service.chat import Chat
from dragonrt.side import SIDES, Side
from dragonrt.traces.counts import AnswerCounts, Counts
from dragonrt.traces.events import LatencyEstimated

USUAL = DragonSettings()


def sample_settings(side: Side, model: str = bundled.models()[0], **others: Any) -> SideSettings:
    """Return settings of a side on a shared machine: sample documents, half the cores, `others`."""
    found = SideSettings(side, model=model, documents=(bundled.documents(side),), **others)
    return found.with_peers_at(["127.0.0.1"])


@asynccontextmanager
async def connected(loaded: Loaded, address: Address) -> AsyncIterator[programs.Device]:
    """Yield a Device that runs `loaded`, model and documents, connected to the cloud `address`."""
    cloud = Member("cloud", address)
    async with programs.device(loaded, [cloud], USUAL) as device:
        if not device.connectors["cloud"].connected:
            raise DragonError(device.connectors["cloud"].absence)
        yield device


@dataclass(frozen=True)
class MeasuredAnswer:
    """An answer of at least one token, with its costs. Times are seconds of the device's clock.

    `first_s` and `seconds` are from the question to the first and to the last token, `between_s` is
    per token after the first. `wire_bytes` counts both directions, probes of the link included.
    """

    answer: client_session.Answer

    @property
    def tokens(self) -> list[int]:
        """Return the tokens of the answer, the stop token included."""
        return self.answer.tokens

    @cached_property
    def counts(self) -> AnswerCounts:
        return AnswerCounts.of(self.answer.records)

    @property
    def first_s(self) -> float:
        return self.answer.decisions[0][0] - self.answer.asked_s

    @property
    def seconds(self) -> float:
        return self.answer.decisions[-1][0] - self.answer.asked_s

    @property
    def between_s(self) -> float | None:
        later = len(self.tokens) - 1
        return (self.seconds - self.first_s) / later if later else None

    @property
    def wire_bytes(self) -> int:
        return self.answer.bytes_sent + self.answer.bytes_received


@dataclass(frozen=True, slots=True)
class Method:
    """A decoding method to compare: its sampling rule, and the side that decides (`aggregator`).

    With `follow`, a side continues the other's drafts, unless the user's settings turn that off.
    """

    name: str
    rule: str
    aggregator: Aggregator
    follow: bool = False

    def settings(self, how: DragonSettings = USUAL) -> DragonSettings:
        """Return the user's settings `how`, with this method's rule, aggregator and `follow`."""
        follow = how.follow and self.follow
        return replace(how, rule=self.rule, aggregator=self.aggregator, follow=follow)


SYNCHRONOUS = Method("synchronous", Coupled.name, Aggregator.SYNC)
SYNCHRONOUS_ALGORITHM1 = Method("synchronous, Algorithm 1", Algorithm1.name, Aggregator.SYNC)
ALGORITHM1_GREEDY = Method("Algorithm 1, greedy", Algorithm1.name, Aggregator.GREEDY)
COUPLED_GREEDY = Method("coupled, greedy", Coupled.name, Aggregator.GREEDY, follow=True)
LEADERLESS = Method("coupled, leaderless", Coupled.name, Aggregator.BOTH, follow=True)

ORACLES = {
    SYNCHRONOUS: None,
    ALGORITHM1_GREEDY: SYNCHRONOUS_ALGORITHM1,
    COUPLED_GREEDY: SYNCHRONOUS,
    LEADERLESS: SYNCHRONOUS,
}
"""The methods of a comparison in the order of its rows, each with its oracle: the synchronous run
with the same rule and seed (SPEC 0)."""

LEGEND = (
    "ms per token: from the question to the last token, over all tokens; after first: the same "
    "without the wait for the first token, whose median is next. Accepted: drafts that became "
    "the target token. Bytes: both directions, probes included. Algorithm 1, greedy is DRAGON as "
    "published; the coupled methods also follow the better draft. The oracle of a method is the "
    "synchronous run with its rule and seed, which never guesses; that of Algorithm 1 was run as "
    "well, for its texts only. The KV of the documents was computed before."
)

Measured = dict[Method, list[MeasuredAnswer]]  # the answers of each method to the same questions


def costs(answers: Sequence[MeasuredAnswer]) -> dict[str, float | None]:
    """Return the answers' times and bytes per token, and acceptance, by name; None if undefined.

    Times are in ms. That to the first token is a median. Acceptance is given for each side.
    """
    pooled = Counts()
    for answer in answers:
        pooled.add(answer.counts)
    shares = {side: (pooled.accepted[side], pooled.compared[side]) for side in SIDES}
    tokens = sum(len(answer.tokens) for answer in answers)
    whole_ms = 1000 * sum(answer.seconds for answer in answers)
    first_ms = [1000 * answer.first_s for answer in answers]
    later = tokens - len(answers)
    return {
        "ms_per_token": whole_ms / tokens,
        "ms_between_tokens": (whole_ms - sum(first_ms)) / later if later else None,
        "first_token_ms": median(first_ms),
        **{f"accepted_{side}": part / of if of else None for side, (part, of) in shares.items()},
        "bytes_per_token": sum(answer.wire_bytes for answer in answers) / tokens,
    }


def chat(
    device: programs.Device, question: Question, how: DragonSettings, stops: Sequence[str] = ()
) -> Chat:
    """Return a new Chat in mode dragon; `how` are its settings, `question` those of each answer."""
    return Chat(replace(device, settings=how, resources=None), question, question.seed, stops)


async def ask_each(
    device: programs.Device,
    prompts: Sequence[str],
    question: Question,
    how: DragonSettings,
    stops: Sequence[str] = (),
) -> list[MeasuredAnswer]:
    """Ask each prompt in a new chat, one after another; return the measured answer to each part.

    `question` has every answer's seed and settings, `how` those of the mode, `stops` end a text.
    """
    answers = [await chat(device, question, how, stops).ask(prompt) for prompt in prompts]
    return given_of(answers)


def given_of(answers: Sequence[Answer]) -> list[MeasuredAnswer]:
    """Return the answer to each part of the `answers` as a MeasuredAnswer, with its costs."""
    return [MeasuredAnswer(part.decoded) for each in answers for part in each.parts]


async def measure(
    device: programs.Device,
    prompts: Sequence[str],
    question: Question,
    how: DragonSettings,
    *,
    stops: Sequence[str] = (),
    given: Measured | None = None,
    on_method: Callable[[Method], None] = lambda method: None,
) -> Measured:
    """Ask all prompts by every method that `given` lacks; return {method: its measured answers}.

    `given`, an earlier result, is kept. Without it, all prompts are first asked untimed, to
    store the KV of documents. Other arguments are those of `ask_each`. `on_method` is called before
    each method. Algorithm 1's oracle is asked all prompts at once, so its times do not count.
    """
    found = dict(given or {})
    if not found:
        once = replace(question, max_tokens=1)
        await ask_each(device, prompts, once, LEADERLESS.settings(how), stops)
    for method in (SYNCHRONOUS, SYNCHRONOUS_ALGORITHM1, *ORACLES):
        if method in found:
            continue
        on_method(method)
        settings, at_once = method.settings(how), method is SYNCHRONOUS_ALGORITHM1
        parts = [[prompt] for prompt in prompts] if at_once else [prompts]
        asking = (ask_each(device, part, question, settings, stops) for part in parts)
        found[method] = [each for part in await asyncio.gather(*asking) for each in part]
    return found


def rows(found: Measured) -> Iterator[dict[str, Any]]:
    """Yield a CSV row per method and answer: costs, and whether its tokens are the oracle's."""
    for method, oracle in ORACLES.items():
        for number, answer in enumerate(found[method]):
            truth = None if oracle is None else found[oracle][number]
            yield {
                "method": method.name,
                "question": number,
                "tokens": len(answer.tokens),
                **_rounded(costs([answer])),
                "same_text": "" if truth is None else int(answer.tokens == truth.tokens),
            }


def comparison_table(found: Measured) -> Table:
    """Return the costs of each method as a table, 80 columns wide; LEGEND explains its columns."""
    headings = ("ms per\ntoken", "after\nfirst", "first,\nms", "accepted %\ndev./cloud")
    table = _table("", *headings, "bytes/\ntoken", "same text\nas oracle")
    for method, oracle in ORACLES.items():
        verdict = "oracle"
        if oracle is not None:
            pairs = [*zip(found[method], found[oracle], strict=True)]
            equal = sum(answer.tokens == truth.tokens for answer, truth in pairs)
            verdict = f"[{'green' if equal == len(pairs) else 'red'}]{equal} of {len(pairs)}[/]"
        spent = costs(found[method])
        table.add_row(
            method.name,
            _cell(spent["ms_per_token"], 1),
            _cell(spent["ms_between_tokens"], 1),
            _cell(spent["first_token_ms"]),
            "/".join(_cell(spent[f"accepted_{side}"], scale=100) for side in SIDES),
            _cell(spent["bytes_per_token"]),
            verdict,
        )
    return table


def evidence_table(asked: Sequence[Answer]) -> Table:
    """Return a table with a row per question: the bits of evidence that each side's files gave.

    They are the sum, over the side's files, of log2 of how much likelier a file made the answer.
    """
    table = _table("bits of evidence from the documents of the", *SIDES)
    for each in asked:
        sources = [source for part in each.parts for source in part.sources]
        bits = [sum(one.bits for one in sources if one.side == side) for side in SIDES]
        table.add_row(each.decoded.question.prompt, *(_cell(known or None) for known in bits))
    return table


def _table(first: str, *headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, max_width=58)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cell(value: float | None, digits: int = 0, scale: float = 1.0) -> str:
    return "-" if value is None else f"{scale * value:.{digits}f}"


def _rounded(values: Mapping[str, float | None], scale: float = 1.0) -> dict[str, float | None]:
    return {n: None if each is None else round(scale * each, 3) for n, each in values.items()}


async def link_report(
    side: SideSettings, model: LanguageModel, cloud: Address
) -> tuple[dict[str, Any], Measured]:
    """Measure the link to `cloud`, and answer public sample questions over it by each method.

    Return a JSON object of numbers, without names of hosts or files and without texts, and the
    answers by method. The device reads no documents, so sends none. Raises DragonError.
    """
    link = await probe(cloud, model)
    prompts = [each.text for each in bundled.questions() if each.demo and each.kind == "public"]
    async with connected(Loaded(side, model), cloud) as device:
        found = await measure(device, prompts, Question(), USUAL)
    sent, again = link.segments or (None, None)
    milliseconds = {
        "connect": link.connect_s,
        "round_trip": link.median_s,
        "round_trip_least": min(link.trips_s),
        "round_trip_most": max(link.trips_s),
        "jitter": link.jitter_s,
        **{f"forward_{side}": _forward_s(side, found[COUPLED_GREEDY]) for side in SIDES},
    }
    return {
        "dragonrt": __version__,
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "device": {"model": model.name, "engine": model.backend.info.engine},
        "cloud": {"software": link.peer.software, "model": link.peer.model},
        "milliseconds": _rounded(milliseconds, 1e3),
        "bits_per_s_up": None if link.up is None else round(link.up),
        "segments_sent": sent,
        "segments_sent_again": again,
        "methods": {method.name: _rounded(costs(found[method])) for method in ORACLES},
    }, found


def _forward_s(side: Side, answers: Sequence[MeasuredAnswer]) -> float | None:
    """Return the seconds of one draft of a side, as both measured them (SPEC 1.4)."""
    events = (record.event for given in answers for record in given.answer.records)
    drafts = [getattr(e, f"{side}_s") for e in events if isinstance(e, LatencyEstimated)]
    return median(drafts) if drafts else None
