"""`sprinter-examples`: texts to look at, with what became of every token (SPRINTER Fig. 7 and 11).

The target alone, speculative decoding and SPRINTER go on from the same prompts as in the tables of
`sprinter-latency`: answers to sample questions, and prose behind the beginnings of articles. What a
token is comes from the records of a real answer. Texts differ between the methods by chance, too:
at this temperature each is another sample, of the target's law but for SPRINTER's.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dragonrt.modes.question import Question
from dragonrt.sampling.samplers import Sampler
from dragonrt.traces.events import TokenDecided
from scripts.papers import charts
from scripts.papers.arena import Given
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, grouped, having
from scripts.papers.sprinter.latency import DRAFT_S, TARGET_S
from scripts.papers.sprinter.lineup import SPECULATIVE, SPRINTERS, SprinterLineup
from scripts.papers.texts import prompts
from scripts.train.controllers.prompt import Prompt

NAME = "sprinter-examples"
SUMMARY = "Texts with what became of every drafted token (SPRINTER Fig. 7, 11; 1 minute)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

TOKENS, TEMPERATURE = 20, 1.0
ROUND_TRIP_S = 0.1
TARGET_ALONE = "target alone"
PASSED, CONFIRMED, REPLACED, OWN = (
    "drafted, passed by the verifier",
    "drafted, confirmed by the target",
    "replaced by the target",
    "the target's own",
)
COLOURS = {
    PASSED: charts.SKY,
    CONFIRMED: charts.GREEN,
    REPLACED: charts.VERMILION,
    OWN: charts.YELLOW,
}


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per token, with the text it goes on from; as many texts of each kind as repeats."""

    lineup = SprinterLineup.load(settings.draft, settings.target)
    kinds = 2 if settings.corpus is None else 1
    found = prompts(lineup.pair.draft, kinds * settings.repeats, settings.corpus)
    rows: list[Row] = []
    for text, prompt in enumerate(found):
        for method, tokens in _texts(lineup, prompt, settings.seed * len(found) + text):
            common = {
                "kind": prompt.kind,
                "text": text,
                "prefix": lineup.pair.draft.decode(prompt.tokens),
                "method": method,
            }
            for step, (token, origin) in enumerate(tokens):
                rows.append(common | {"step": step, "token": token, "origin": origin})
        progress(text + 1, len(found))
    return rows


def _texts(
    lineup: SprinterLineup, prompt: Prompt, seed: int
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """What each method says behind a prompt: its tokens as text, and what became of each."""

    question = Question(
        seed=seed, sampler=Sampler(TEMPERATURE), max_tokens=TOKENS, stop_tokens=prompt.stops
    )
    decode = lineup.pair.target.decode
    tokens, _ = lineup.target_text(question, prompt)
    yield TARGET_ALONE, [(decode([token]), OWN) for token in tokens]
    for method in (SPECULATIVE, next(iter(SPRINTERS))):
        given, _ = lineup.answer(
            method, question, prompt.tokens, ROUND_TRIP_S, {"device": DRAFT_S, "cloud": TARGET_S}
        )
        yield method, [(decode([each.token]), origin(each)) for each in decided(given)]


def decided(given: Given) -> Iterator[TokenDecided]:
    """The decisions of an answer in their order."""

    for record in given.answer.records:
        if isinstance(record.event, TokenDecided):
            yield record.event


def origin(decision: TokenDecided) -> str:
    """What became of the draft in a token's place, where one model drafts and another verifies."""
    if decision.device is None:
        return OWN
    if not decision.device:
        return REPLACED
    return CONFIRMED if decision.cause == "target" else PASSED


def summarise(rows: list[Row]) -> dict[str, Any]:
    """The texts, and for each method the share of its tokens of each origin."""
    shares = {
        method: {
            origin: round(len(having(group, origin=origin)) / len(group), 4) for origin in COLOURS
        }
        for (method,), group in grouped(rows, "method").items()
    }
    texts = [
        {"prefix": prefix}
        | {
            method: "".join(row["token"] for row in tokens)
            for (method,), tokens in grouped(group, "method").items()
        }
        for (_, prefix), group in grouped(rows, "text", "prefix").items()
    ]
    return {"shares": shares, "texts": texts}


COLUMNS, MARGIN = 116, 14
"""Characters of a line, and those before it that name the method."""
FONT_POINTS, LINE_INCHES = 8.0, 0.17

Placed = tuple[int, int, str, str | None]
"""TokenPrefix, column, text and origin (None of what is given) of a token in the picture."""


def plot(rows: list[Row], path: Path) -> None:
    """Each prefix in grey, and below it the texts, every token on the colour of its origin."""
    line, placed = 0, list[Placed]()
    for (_, prefix), group in grouped(rows, "text", "prefix").items():
        given = [(f"{word} ", None) for word in prefix.split()]
        lines = {"prefix": given} | {
            method: [(row["token"], row["origin"]) for row in some]
            for (method,), some in grouped(group, "method").items()
        }
        for name, tokens in lines.items():
            placed.append((line, 0, name, None))
            placed += _laid(tokens, line)
            line = placed[-1][0] + 1
        line += 1
    with charts.picture(path, height_inches=LINE_INCHES * line + 0.5) as (figure, axes):
        axis = axes[0, 0]
        axis.set(xlim=(0, COLUMNS), ylim=(line, 0))
        axis.set_axis_off()
        for each in placed:
            _write(axis, *each)
        from matplotlib.patches import Patch

        keys = [Patch(color=colour, alpha=0.5, label=name) for name, colour in COLOURS.items()]
        figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), fontsize=8)


def _laid(tokens: Iterable[tuple[str, str | None]], line: int) -> Iterator[Placed]:
    """The tokens from that line on, none of them broken."""
    column = MARGIN
    for token, origin in tokens:
        shown = token.replace("\n", "↵")
        if column + len(shown) > COLUMNS:
            line, column = line + 1, MARGIN
        yield line, column, shown, origin
        column += len(shown)


def _write(axis: Any, line: int, column: int, text: str, origin: str | None) -> None:
    if origin is not None:
        extent = [column, column + len(text) - 0.12], line + 0.05, line + 0.95
        axis.fill_between(*extent, color=COLOURS[origin], alpha=0.5, linewidth=0)
    axis.text(
        column,
        line + 0.5,
        text,
        family="monospace",
        size=FONT_POINTS,
        color=charts.BLACK if origin is not None else charts.GREY,
        verticalalignment="center_baseline",
        parse_math=False,
    )
