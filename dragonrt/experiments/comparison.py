"""Methods of answering, the same questions answered by each, and what the answers cost."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from rich.table import Table

from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.client_session import Answer
from dragonrt.node.main import Device
from dragonrt.sampling.aggregation import Algorithm1, Coupled
from dragonrt.service.conversation import Conversation
from dragonrt.side import Side
from dragonrt.traces.counts import AnswerCounts

USUAL = DragonSettings()


@dataclass(frozen=True)
class Given:
    """An answer of at least one token and what it cost. Times are seconds of the device's clock."""

    answer: Answer

    @property
    def tokens(self) -> list[int]:
        """The tokens, the stop token included."""
        return self.answer.tokens

    @cached_property
    def counts(self) -> AnswerCounts:
        """What happened during the answer, in numbers."""
        return AnswerCounts.of(self.answer.records)

    @property
    def first_s(self) -> float:
        """Time from the question to the first token."""
        return self.answer.decisions[0][0] - self.answer.asked_s

    @property
    def seconds(self) -> float:
        """Time from the question to the last token."""
        return self.answer.decisions[-1][0] - self.answer.asked_s

    @property
    def between_s(self) -> float | None:
        """Time per token after the first; None if there is no other."""
        later = len(self.tokens) - 1
        return (self.seconds - self.first_s) / later if later else None

    @property
    def wire_bytes(self) -> int:
        """Bytes in both directions, probes included."""
        return self.answer.bytes_sent + self.answer.bytes_received

    def accepted(self, side: Side) -> float | None:
        """Return the share of a side's drafts that became target tokens; None if none could."""
        compared = self.counts.compared[side]
        return self.counts.accepted[side] / compared if compared else None


@dataclass(frozen=True, slots=True)
class Method:
    """One way for two sides to agree on tokens (SPEC 1.1 to 1.3).

    `follow` lets a draft adopt the peer's tokens (SPEC 1.7), unless the user forbids it.
    """

    name: str
    rule: str
    aggregator: Aggregator
    follow: bool

    def settings(self, how: DragonSettings = USUAL) -> DragonSettings:
        """Return the user's settings with this method's rule and aggregator."""
        follow = how.follow and self.follow
        return replace(how, rule=self.rule, aggregator=self.aggregator, follow=follow)


SYNCHRONOUS = Method("synchronous", Coupled.name, Aggregator.SYNC, follow=False)
SYNCHRONOUS_ALGORITHM1 = Method(
    "synchronous, Algorithm 1", Algorithm1.name, Aggregator.SYNC, follow=False
)
ALGORITHM1_GREEDY = Method("Algorithm 1, greedy", Algorithm1.name, Aggregator.GREEDY, follow=False)
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
    "published; the coupled methods also follow the better line. The oracle of a method is the "
    "synchronous run with its rule and seed, which never guesses; that of Algorithm 1 was run as "
    "well, for its texts only. The KV of the documents was computed before."
)


@dataclass(frozen=True, slots=True)
class AnswerCosts:
    """What answers cost together; see LEGEND. None where nothing could be measured."""

    ms_per_token: float
    ms_between_tokens: float | None
    first_token_ms: float
    accepted_device: float | None
    accepted_cloud: float | None
    bytes_per_token: float


def costs(answers: Sequence[Given]) -> AnswerCosts:
    """Return the costs of answers that have at least one token each."""
    tokens = sum(len(answer.tokens) for answer in answers)
    whole_ms = 1000 * sum(answer.seconds for answer in answers)
    first_ms = [1000 * answer.first_s for answer in answers]
    later = tokens - len(answers)
    return AnswerCosts(
        ms_per_token=whole_ms / tokens,
        ms_between_tokens=(whole_ms - sum(first_ms)) / later if later else None,
        first_token_ms=median(first_ms),
        accepted_device=_accepted(answers, "device"),
        accepted_cloud=_accepted(answers, "cloud"),
        bytes_per_token=sum(answer.wire_bytes for answer in answers) / tokens,
    )


def _accepted(answers: Sequence[Given], side: Side) -> float | None:
    compared = sum(answer.counts.compared[side] for answer in answers)
    accepted = sum(answer.counts.accepted[side] for answer in answers)
    return accepted / compared if compared else None


def equal_answers(answers: Sequence[Given], oracle: Sequence[Given]) -> int:
    """Return how many answers have the very tokens of the oracle's."""
    pairs = zip(answers, oracle, strict=True)
    return sum(answer.tokens == truth.tokens for answer, truth in pairs)


Measured = dict[Method, list[Given]]
"""The answers of each method to the same questions."""


def conversation(
    device: Device, question: Question, how: DragonSettings, stops: Sequence[str] = ()
) -> Conversation:
    """Return a conversation without history by these settings, with the question's seed."""
    return Conversation(replace(device, settings=how), question, question.seed, tuple(stops))


async def ask_each(
    device: Device,
    prompts: Sequence[str],
    question: Question,
    how: DragonSettings,
    stops: Sequence[str] = (),
) -> list[Given]:
    """Ask the prompts one after another, as costs are measured."""
    return [
        Given((await conversation(device, question, how, stops).ask(prompt)).answer)
        for prompt in prompts
    ]


async def measured(
    device: Device,
    prompts: Sequence[str],
    question: Question,
    how: DragonSettings,
    *,
    stops: Sequence[str] = (),
    given: Measured | None = None,
    on_method: Callable[[Method], None] = lambda method: None,
) -> Measured:
    """Ask all prompts by every method, one after another, and return the answers.

    The oracle of Algorithm 1 is asked everything at once: only its texts count. What is `given`
    already is not asked again.
    """
    found = dict(given or {})
    for method in (SYNCHRONOUS, SYNCHRONOUS_ALGORITHM1, *ORACLES):
        if method in found:
            continue
        on_method(method)
        settings = method.settings(how)
        if method is SYNCHRONOUS_ALGORITHM1:
            talks = [conversation(device, question, settings, stops) for _ in prompts]
            asking = (talk.ask(prompt) for talk, prompt in zip(talks, prompts, strict=True))
            found[method] = [Given(reply.answer) for reply in await asyncio.gather(*asking)]
        else:
            found[method] = await ask_each(device, prompts, question, settings, stops)
    return found


def comparison_table(found: Measured) -> Table:
    """Return the methods' costs as a table for the terminal, 80 columns wide; see LEGEND."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for heading in (
        *("ms per\ntoken", "after\nfirst", "first,\nms", "accepted %\ndev./cloud"),
        *("bytes/\ntoken", "same text\nas oracle"),
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for method, oracle in ORACLES.items():
        spent, verdict = costs(found[method]), "oracle"
        if oracle is not None:
            equal, all_ = equal_answers(found[method], found[oracle]), len(found[method])
            verdict = f"[{'green' if equal == all_ else 'red'}]{equal} of {all_}[/]"
        table.add_row(
            method.name,
            f"{spent.ms_per_token:.1f}",
            "-" if spent.ms_between_tokens is None else f"{spent.ms_between_tokens:.1f}",
            f"{spent.first_token_ms:.0f}",
            f"{_percent(spent.accepted_device)}/{_percent(spent.accepted_cloud)}",
            f"{spent.bytes_per_token:.0f}",
            verdict,
        )
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}"
