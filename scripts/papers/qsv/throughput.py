"""`qs-throughput`: tokens per second over temperature, for every way to choose blocks (QSV Fig. 4).

Over a Markov uplink (the link the bundled controller was trained for): the cloud alone, S-Q and Q-S
with the best fixed action, the heuristic, Double DQN. Twice:
- on recorded texts, in the law of speculative decoding (see `training.recording`): many episodes,
  so that a grid over all fixed actions can be searched, on every other text, and small differences
  be seen on the rest;
- by the runtime, real models and messages in virtual time, with the actions that the grid chose.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragonrt.control.learned import controller
from dragonrt.control.policies import Action, Heuristic, Static
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.question import Question
from dragonrt.modes.settings import SpeculativeSettings
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Interval, Row, grouped, having, paired
from scripts.papers.model_sides import BlockPace, RecalledAnswers
from scripts.papers.parallel import measure_all
from scripts.papers.speculation import model_pair
from scripts.train.controllers.controller_plan import ControllerPlan
from scripts.train.controllers.course import best, evaluate, grid
from scripts.train.controllers.model_pair import ModelPair, Tasks
from scripts.train.controllers.prompt import bundled_prompts, corpus_prompts
from scripts.train.controllers.recording import RecordedEnvironment

NAME = "qs-throughput"
SUMMARY = "Tokens/s of static, heuristic and learned control (QSV Fig. 4; 25 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
TEMPERATURES_QUICK = (0.2, 0.8)
CLOUD, S_Q, STATIC, HEURISTIC, LEARNED = "cloud only", "S-Q", "Q-S static", "heuristic", "DDQN"
RECORDED, RUNTIME = "recorded", "runtime"
TOKENS, TOKENS_QUICK = 64, 24
TEXTS, EPISODES = 40, 4
"""Recorded texts of each repeat, and episodes on each of them."""
ANSWERS = 30
"""Of the runtime, of each repeat: texts differ in what a draft is worth, so it takes many."""
_HELD_OUT = 7_000_000
"""Where the numbers of tasks and courses begin: none that the controller was trained on."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The answers of a pair of models at one temperature."""

    pair: tuple[str, str]
    corpus: Path | None
    tokens: int
    temperature: float

    def load(self) -> ModelPair:
        """The models."""

        return model_pair(*self.pair)

    def plan(self) -> ControllerPlan:
        """What the bundled controller was trained for, at this temperature."""

        return ControllerPlan(temperatures=(self.temperature,), max_tokens=self.tokens)

    def tasks(self) -> Tasks:
        """The prompts."""

        target, corpus = self.load().target, self.corpus
        prompts = bundled_prompts(target) if corpus is None else corpus_prompts(target, corpus)
        return self.plan().tasks(prompts)


@dataclass(frozen=True, slots=True)
class RecordedCase:
    """Recorded texts of these numbers."""

    texts: Texts
    seeds: range


@dataclass(frozen=True, slots=True)
class RuntimeCase:
    """One answer, in every way; the fixed ones take `action`."""

    texts: Texts
    seed: int
    action: Action


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per source, temperature, way and episode or answer.

    `length` and `resolution` are the fixed action's, None where a controller chooses.
    """

    heats = TEMPERATURES_QUICK if settings.quick else TEMPERATURES
    tokens = TOKENS_QUICK if settings.quick else TOKENS
    texts = settings.repeats * (3 if settings.quick else TEXTS)
    answers = settings.repeats * (1 if settings.quick else ANSWERS)
    first = _HELD_OUT + settings.seed * texts
    pair = (settings.draft, settings.target)
    of = {heat: Texts(pair, settings.corpus, tokens, heat) for heat in heats}
    recorded = [RecordedCase(of[heat], range(first, first + texts)) for heat in heats]
    total = len(recorded) + len(heats) * answers
    rows = [
        row
        for some in measure_all(_record, recorded, lambda done, _: progress(done, total))
        for row in some
    ]
    chosen = {
        row["temperature"]: Action(row["length"], row["resolution"])
        for row in rows
        if row["way"] == STATIC
    }
    cases = [
        RuntimeCase(of[heat], seed, chosen[heat])
        for heat in heats
        for seed in range(first, first + answers)
    ]
    for some in measure_all(_answer, cases, lambda done, _: progress(len(recorded) + done, total)):
        rows += some
    return rows


def _record(case: RecordedCase) -> list[Row]:
    """The controllers on every other text; on the rest the grid finds the best fixed action."""

    texts, plan = case.texts, case.texts.plan()
    recording = texts.load().record(
        texts.tasks(), plan.codec, plan.resolutions, case.seeds, lambda done, all_: None
    )
    costs = plan.costs(recording.vocabulary)
    searched, environment = (
        RecordedEnvironment(replace(recording, texts=recording.texts[start::2]), costs)
        for start in (0, 1)
    )
    count = EPISODES * len(recording.texts) // 2
    episodes = range(case.seeds.start, case.seeds.start + count)
    action = best(grid(searched, plan.lengths, plan.resolutions, episodes))
    common = {"source": RECORDED, "temperature": texts.temperature}
    fixed: Row = {"length": action.length, "resolution": action.resolution}
    free: Row = {"length": None, "resolution": None}
    unsent: Row = {"bits": None, "bytes": None}
    alone = {"tokens": texts.tokens, "seconds": texts.tokens * costs.target_s}
    alone |= {"calls": texts.tokens} | unsent
    rows = [{**common, "way": CLOUD, "episode": episodes.start} | free | alone]
    for way, control in (
        (STATIC, Static(action)),
        (HEURISTIC, Heuristic(action.resolution)),
        (LEARNED, controller("default")),
    ):
        for episode in episodes:
            score = evaluate(control, environment, [episode])
            rows.append(
                {**common, "way": way, "episode": episode}
                | (fixed if way == STATIC else free)
                | {"tokens": score.tokens, "seconds": score.seconds, "calls": score.iterations}
                | unsent
            )
    return rows


def _answer(case: RuntimeCase) -> list[Row]:
    """One answer of the runtime in every way; the cloud's alone needs no uplink."""

    planned, pair = case.texts.plan(), case.texts.load()
    prompt, sampler, _ = case.texts.tasks().choose(case.seed)
    costs = planned.costs(pair.target.vocabulary)
    link = LinkProfile.load(planned.link)
    pace = BlockPace(costs.draft_s, costs.target_s, link, case.seed)
    answers = RecalledAnswers(pair.draft, pair.target, prompt.tokens, case.seed)
    action = case.action
    question = Question(
        seed=case.seed,
        sampler=sampler,
        max_tokens=case.texts.tokens,
        stop_tokens=prompt.stops,
    )
    static = f"static:{action.length}:{action.resolution}"
    alone = answers.alone(question)
    rows: list[Row] = [
        {
            "source": RUNTIME,
            "temperature": case.texts.temperature,
            "way": CLOUD,
            "episode": case.seed,
            "length": None,
            "resolution": None,
            "tokens": alone,
            "seconds": pace.streamed_s(alone),
            "calls": alone,
            "bits": None,
            "bytes": None,
        }
    ]
    for way, rule, control in (
        (S_Q, "sample-quantize", static),
        (STATIC, "rejection", static),
        (HEURISTIC, "rejection", f"heuristic:{action.resolution}"),
        (LEARNED, "rejection", "default"),
    ):
        settings = SpeculativeSettings(
            rule=rule, codec=planned.codec, controller=control, pipelined=False
        )
        answer = answers.answer(question, settings, pace)
        fixed = way in (S_Q, STATIC)
        rows.append(
            {
                "source": RUNTIME,
                "temperature": case.texts.temperature,
                "way": way,
                "episode": case.seed,
                "length": action.length if fixed else None,
                "resolution": action.resolution if fixed else None,
                "tokens": len(answer.tokens),
                "seconds": answer.seconds,
                "calls": answer.counts.verified,
                "bits": answer.counts.bits,
                "bytes": answer.answer.bytes_sent,
            }
        )
    return rows


def throughput(rows: list[Row]) -> Interval:
    """Tokens per second over all episodes."""
    return paired(_per_second, *_columns(rows))


def gain(rows: list[Row], over: list[Row]) -> Interval:
    """How many tokens per second more `rows` have than the same episodes of another way."""
    theirs = {(row["temperature"], row["episode"]): row for row in over}
    same = [theirs[row["temperature"], row["episode"]] for row in rows]

    def more(tokens: Any, seconds: Any, other: Any, others: Any, axis: int) -> Any:
        return _per_second(tokens, seconds, axis) - _per_second(other, others, axis)

    return paired(more, *_columns(rows), *_columns(same))


def _columns(rows: list[Row]) -> tuple[list[float], list[float]]:
    return [row["tokens"] for row in rows], [row["seconds"] for row in rows]


def _per_second(tokens: Any, seconds: Any, axis: int) -> Any:
    return tokens.sum(axis) / seconds.sum(axis)


def _rounded(speed: Interval) -> dict[str, float]:
    numbers = {"tokens_per_s": speed.value, "low": speed.low, "high": speed.high}
    return {name: round(number, 3) for name, number in numbers.items()}


def _per_call(rows: list[Row]) -> dict[str, float]:
    """Tokens per forward of the target: what a way is worth to a cloud that many share."""
    tokens, calls = (sum(row[name] for row in rows) for name in ("tokens", "calls"))
    return {"tokens_per_call": round(tokens / calls, 3)}


def _sizes(rows: list[Row]) -> dict[str, float]:
    """What a token takes on the uplink: its share of the blocks, and of everything that is sent."""
    if rows[0]["bits"] is None:
        return {}
    tokens = sum(row["tokens"] for row in rows)
    return {
        "block_bits_per_token": round(sum(row["bits"] for row in rows) / tokens, 1),
        "sent_bits_per_token": round(8 * sum(row["bytes"] for row in rows) / tokens, 1),
    }


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Throughputs with their intervals; at how many temperatures DDQN is at least the best static,
    and the heuristic below it; all temperatures together at last."""
    summary: dict[str, Any] = {}
    for source, some in grouped(rows, "source").items():
        found: dict[str, Any] = {}
        for (heat,), at in grouped(some, "temperature").items():
            ways = {way: _rounded(throughput(own)) for (way,), own in grouped(at, "way").items()}
            static = next(row for row in at if row["way"] == STATIC)
            ways[STATIC] |= {"length": static["length"], "resolution": static["resolution"]}
            found[str(heat)] = ways
        speeds = [
            {way: each["tokens_per_s"] for way, each in ways.items()} for ways in found.values()
        ]
        summary[source[0]] = {
            "temperatures": len(speeds),
            "ddqn_at_least_best_static": sum(each[LEARNED] >= each[STATIC] for each in speeds),
            "heuristic_below_best_static": sum(each[HEURISTIC] < each[STATIC] for each in speeds),
            "heuristic_below_ddqn": sum(each[HEURISTIC] < each[LEARNED] for each in speeds),
            "all": {
                way: _rounded(throughput(own)) | _per_call(own) | _sizes(own)
                for (way,), own in grouped(some, "way").items()
            },
            "ddqn_over_static": gain(having(some, way=LEARNED), having(some, way=STATIC)).to_json(),
            **found,
        }
    return summary


def plot(rows: list[Row], path: Path) -> None:
    """One panel per source."""
    looks = {
        CLOUD: charts.Look(charts.GREY, "o"),
        S_Q: charts.Look(charts.BLUE, "s", "--"),
        STATIC: charts.Look(charts.ORANGE, "^", label=f"{STATIC}, best of the grid"),
        HEURISTIC: charts.Look(charts.GREEN, "D"),
        LEARNED: charts.Look(charts.VERMILION, "v"),
    }
    titles = {RECORDED: "recorded texts", RUNTIME: "runtime, virtual time"}
    with charts.picture(path, columns=2, height_inches=3.9, sharey=True) as (_, axes):
        for axis, (source, title) in zip(axes[0], titles.items(), strict=True):
            groups = grouped(having(rows, source=source), "way", "temperature")
            found = {key: throughput(own) for key, own in groups.items()}
            charts.lines(axis, found, looks, apart=0.008)
            axis.set(title=title, xlabel="temperature")
        axes[0, 0].set(ylabel="tokens/s (95 %)", ylim=(0, None))
        axes[0, 1].legend(fontsize=8)
