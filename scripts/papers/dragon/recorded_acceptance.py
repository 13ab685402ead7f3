"""Acceptance sequences of real models: which of both sides' drafts became target tokens, by step.

A bundled model answers the sample questions on both sides: the real runtime in virtual time, under
the coupled rule and the synchronous scheduler, where every step compares both sides' drafts. What
is accepted depends on neither the network nor the scheduler (SPEC section 0). A sequence is that
of consecutive answers, cut to its length; the order of the questions and the noise are its own.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from dragonrt import bundled
from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.traces.events import TokenDecided
from scripts.papers.acceptances import Acceptances
from scripts.papers.framework import ExperimentError, read_rows, write_rows
from scripts.papers.intervals import Row, grouped, having
from scripts.papers.model_sides import document_side, run
from scripts.papers.sample_sides import LoadedSide, sample_settings
from scripts.papers.virtual_arena import linked

SIDES: tuple[Side, ...] = ("device", "cloud")

TEMPERATURE = 0.8
QUESTIONS = [question.text for question in bundled.questions()]
LONGEST_ANSWER = 64
COLUMNS = {"source", "sequence", "step", "device", "cloud"}
DECODE_S = 0.01
"""Of virtual time: nothing recorded here depends on it."""


def recorded(
    model: str, seeds: Sequence[int], tokens: int, path: Path, progress: Callable[[int], None]
) -> list[Acceptances]:
    """A sequence of so many tokens for each seed; `progress` hears how many there are.

    They are kept as a CSV at `path`, beside those of other models. One that has them is used,
    whoever recorded it.
    """
    rows = _read(path)
    kept = _sequences(having(rows, source=source(model)), tokens)
    if not all(seed in kept for seed in seeds):
        kept = _record(model, seeds, tokens, progress)
        others = [row for row in rows if row["source"] != source(model)]
        write_rows(others + _rows(kept, model), path)
    return [kept[seed] for seed in seeds]


def _record(
    model: str, seeds: Sequence[int], tokens: int, progress: Callable[[int], None]
) -> dict[int, Acceptances]:
    sides = LoadedSide.load(sample_settings("device", model))
    models = sides, LoadedSide.opened(sample_settings("cloud", model), sides.model)
    found: dict[int, Acceptances] = {}
    for seed in seeds:
        found[seed] = run(_sequence(*models, tokens, seed), virtual=True)
        progress(len(found))
    return found


async def _sequence(device: LoadedSide, cloud: LoadedSide, tokens: int, seed: int) -> Acceptances:
    chance = random.Random(seed)
    decided: list[TokenDecided] = []
    left: list[str] = []
    async with linked(document_side(device, DECODE_S), [document_side(cloud, DECODE_S)]) as arena:
        while len(decided) < tokens:
            left = left or chance.sample(QUESTIONS, len(QUESTIONS))
            question = Question(
                prompt=left.pop(),
                seed=chance.getrandbits(32),
                sampler=Sampler(TEMPERATURE),
                max_tokens=LONGEST_ANSWER,
                stop_tokens=tuple(device.model.stop_tokens),
            )
            given = await arena.ask(question, DragonSettings(aggregator=Aggregator.SYNC))
            decided += (event for _, event in given.answer.decisions)
    return acceptances(decided[:tokens])


def acceptances(decided: Sequence[TokenDecided]) -> Acceptances:
    """Whose drafts became the target tokens, where both sides' were compared."""
    device, cloud = ([bool(each.accepted(side)) for each in decided] for side in SIDES)
    return Acceptances(tuple(device), tuple(cloud))


def source(model: str) -> str:
    """What rows say of where they come from."""
    return f"{model} on the sample questions, coupled rule, temperature {TEMPERATURE}"


def _rows(sequences: dict[int, Acceptances], model: str) -> list[Row]:
    return [
        {
            "source": source(model),
            "sequence": seed,
            "step": step,
            "device": device,
            "cloud": cloud,
        }
        for seed, each in sequences.items()
        for step, (device, cloud) in enumerate(zip(each.device, each.cloud, strict=True))
    ]


def _read(path: Path) -> list[Row]:
    """What is kept; nothing where there is no such file of sequences."""
    try:
        rows = read_rows(path)
    except ExperimentError:
        return []
    return rows if rows[0].keys() == COLUMNS else []


def _sequences(rows: list[Row], tokens: int) -> dict[int, Acceptances]:
    """Those of that length, by seed."""
    sequences = {
        seed: Acceptances(
            tuple(bool(row["device"]) for row in group),
            tuple(bool(row["cloud"]) for row in group),
        )
        for (seed,), group in grouped(rows, "sequence").items()
    }
    return {seed: each for seed, each in sequences.items() if len(each.device) == tokens}
