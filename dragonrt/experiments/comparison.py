"""Ways of answering, the same questions answered each way, and what each of them cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from rich.table import Table

from dragonrt.control.scheduler import Aggregator
from dragonrt.experiments.arena import Given, RealArena
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.aggregation import Algorithm1, Coupled
from dragonrt.side import Side

USUAL = DragonSettings()


@dataclass(frozen=True, slots=True)
class Method:
    """One way for two sides to agree on tokens (SPEC 1.1 to 1.3).

    `follow` lets it follow the better line (SPEC 1.7), unless the user forbids it.
    """

    name: str
    rule: str
    aggregator: Aggregator
    follow: bool

    def settings(self, how: DragonSettings = USUAL) -> DragonSettings:
        """Answering this way, in all else as the user wants it."""
        follow = how.follow and self.follow
        return replace(how, rule=self.rule, aggregator=self.aggregator, follow=follow)


SYNCHRONOUS = Method("synchronous", Coupled.name, Aggregator.SYNC, follow=False)
SYNCHRONOUS_ALGORITHM1 = Method(
    "synchronous, Algorithm 1", Algorithm1.name, Aggregator.SYNC, follow=False
)
ALGORITHM1_GREEDY = Method("Algorithm 1, greedy", Algorithm1.name, Aggregator.GREEDY, follow=False)
COUPLED_GREEDY = Method("coupled, greedy", Coupled.name, Aggregator.GREEDY, follow=True)
LEADERLESS = Method("coupled, leaderless", Coupled.name, Aggregator.BOTH, follow=True)

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
    """What answers cost together.

    `ms_per_token` is the time from asking to the last token, over all tokens of all answers: the
    wait for the first token is in it. `ms_between_tokens` leaves that wait out: the time from an
    answer's first to its last token, over the tokens after the first (None if there are none).
    Acceptance counts drafts that became the target token (None: none were compared). Bytes are
    everything on the connection, probes included, in both directions.
    """

    ms_per_token: float
    ms_between_tokens: float | None
    first_token_ms: float
    accepted_device: float | None
    accepted_cloud: float | None
    bytes_per_token: float


def costs(answers: Sequence[Given]) -> AnswerCosts:
    """The costs of answers that have at least one token each."""
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
    """How many answers have the very tokens of the oracle's."""
    pairs = zip(answers, oracle, strict=True)
    return sum(answer.tokens == truth.tokens for answer, truth in pairs)


@dataclass(frozen=True, slots=True)
class MethodRow:
    """One method's line of the table.

    `equal` of `answers` texts are those of the method's oracle, the synchronous run with the same
    rule and seed (SPEC 0); None for a method that is the oracle itself.
    """

    method: Method
    costs: AnswerCosts
    answers: int
    equal: int | None


Measured = dict[Method, list[Given]]
"""The answers of each method to the same questions."""

ORACLES = {
    SYNCHRONOUS: None,
    ALGORITHM1_GREEDY: SYNCHRONOUS_ALGORITHM1,
    COUPLED_GREEDY: SYNCHRONOUS,
    LEADERLESS: SYNCHRONOUS,
}
"""The methods of a comparison in the order of its rows, each with its oracle."""


async def measured(
    arena: RealArena,
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
        if method not in found:
            on_method(method)
            ask = arena.ask_at_once if method is SYNCHRONOUS_ALGORITHM1 else arena.ask_each
            found[method] = await ask(prompts, question, method.settings(how), stops)
    return found


def method_rows(found: Measured) -> list[MethodRow]:
    """The table's line of each method."""
    return [
        MethodRow(
            method,
            costs(found[method]),
            len(found[method]),
            equal_answers(found[method], found[oracle]) if oracle else None,
        )
        for method, oracle in ORACLES.items()
    ]


def comparison_table(rows: Sequence[MethodRow]) -> Table:
    """The rows as a table for the terminal, 80 columns wide; LEGEND explains it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for heading in (
        "ms per\ntoken",
        "after\nfirst",
        "first,\nms",
        "accepted %\ndev./cloud",
        "bytes/\ntoken",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("same text\nas oracle", justify="right", no_wrap=True)
    for row in rows:
        spent = row.costs
        table.add_row(
            row.method.name,
            _time(spent.ms_per_token),
            _time(spent.ms_between_tokens),
            f"{spent.first_token_ms:.0f}",
            f"{_percent(spent.accepted_device)}/{_percent(spent.accepted_cloud)}",
            f"{spent.bytes_per_token:.0f}",
            _verdict(row),
        )
    return table


def _verdict(row: MethodRow) -> str:
    if row.equal is None:
        return "oracle"
    colour = "green" if row.equal == row.answers else "red"
    return f"[{colour}]{row.equal} of {row.answers}[/]"


def _time(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.1f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}"
