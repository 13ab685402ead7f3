"""`qs-throughput`: tokens per second over temperature, for every way to choose blocks (QSV Fig. 4).

Over a Markov uplink (the link the bundled controller was trained for): the cloud alone, S-Q and Q-S
with the best fixed action, the heuristic, Double DQN. Twice:
- on recorded texts, in the law of speculative decoding (see `scripts.train.controllers.recording`):
  many episodes, so that a grid over all fixed actions can be searched, on every other text, and
  small differences be seen on the rest;
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
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.intervals import Interval, Row, grouped, having, paired
from scripts.papers.model_sides import BlockPace, RecalledAnswers
from scripts.papers.speculation import model_pair
from scripts.train.controllers.controller_plan import ControllerPlan
from scripts.train.controllers.course import best, evaluate, grid
from scripts.train.controllers.model_pair import ModelPair, Tasks
from scripts.train.controllers.prompt import bundled_prompts, corpus_prompts
from scripts.train.controllers.recording import RecordedEnvironment

NAME = "qs-throughput"
SUMMARY = "Tokens/s of static, heuristic and learned control (QSV Fig. 4; 25 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

TEMPERATURES, TEMPERATURES_QUICK = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), (0.2, 0.8)
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
        """Return the models."""
        return model_pair(*self.pair)

    def plan(self) -> ControllerPlan:
        """Return what the bundled controller was trained for, at this temperature."""
        return ControllerPlan(temperatures=(self.temperature,), max_tokens=self.tokens)

    def tasks(self) -> Tasks:
        """Return the prompts."""
        target, corpus = self.load().target, self.corpus
        prompts = bundled_prompts(target) if corpus is None else corpus_prompts(target, corpus)
        return self.plan().tasks(prompts)

    def row(self, source: str, way: str, episode: int, action: Action | None) -> Row:
        """Return the columns that say what was measured; a controller has no fixed action."""
        return {
            "source": source,
            "temperature": self.temperature,
            "way": way,
            "episode": episode,
            "length": action and action.length,
            "resolution": action and action.resolution,
        }


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
    """Return a row per source, temperature, way and episode or answer.

    `length` and `resolution` are the fixed action's, None if a controller chooses.
    """
    heats = settings.size(TEMPERATURES, TEMPERATURES_QUICK)
    tokens = settings.size(TOKENS, TOKENS_QUICK)
    texts = settings.repeats * settings.size(TEXTS, 3)
    answers = settings.repeats * settings.size(ANSWERS, 1)
    first = _HELD_OUT + settings.seed * texts
    of = {heat: Texts(settings.pair, settings.corpus, tokens, heat) for heat in heats}
    recorded = [RecordedCase(each, range(first, first + texts)) for each in of.values()]
    total = len(recorded) + len(heats) * answers
    rows = measure_all(_record, recorded, lambda done, _: progress(done, total), processes=True)
    chosen = {
        row["temperature"]: Action(row["length"], row["resolution"])
        for row in having(rows, way=STATIC)
    }
    cases = [
        RuntimeCase(each, seed, chosen[heat])
        for heat, each in of.items()
        for seed in range(first, first + answers)
    ]
    return rows + measure_all(
        _answer, cases, lambda done, _: progress(len(recorded) + done, total), processes=True
    )


def _record(case: RecordedCase) -> list[Row]:
    """Run the controllers on every other text; on the rest the grid finds the best fixed action."""
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

    def row(way: str, episode: int, tokens: int, seconds: float, calls: int) -> Row:
        fixed = action if way == STATIC else None
        costs = {"tokens": tokens, "seconds": seconds, "calls": calls, "bits": None, "bytes": None}
        return texts.row(RECORDED, way, episode, fixed) | costs

    rows = [row(CLOUD, episodes.start, texts.tokens, texts.tokens * costs.target_s, texts.tokens)]
    for way, control in (
        (STATIC, Static(action)),
        (HEURISTIC, Heuristic(action.resolution)),
        (LEARNED, controller("default")),
    ):
        for episode in episodes:
            score = evaluate(control, environment, [episode])
            rows.append(row(way, episode, score.tokens, score.seconds, score.iterations))
    return rows


def _answer(case: RuntimeCase) -> list[Row]:
    """Return one answer of the runtime in every way; the cloud's alone needs no uplink."""
    texts, action = case.texts, case.action
    planned, pair = texts.plan(), texts.load()
    prompt, sampler, _ = texts.tasks().choose(case.seed)
    costs = planned.costs(pair.target.vocabulary)
    pace = BlockPace(costs.draft_s, costs.target_s, LinkProfile.load(planned.link), case.seed)
    answers = RecalledAnswers(pair.draft, pair.target, prompt.tokens, case.seed)
    question = Question(
        seed=case.seed, sampler=sampler, max_tokens=texts.tokens, stop_tokens=prompt.stops
    )
    static = f"static:{action.length}:{action.resolution}"
    found = [texts.row(RUNTIME, CLOUD, case.seed, None) | answers.streamed(question, pace)]
    for way, rule, control in (
        (S_Q, "sample-quantize", static),
        (STATIC, "rejection", static),
        (HEURISTIC, "rejection", f"heuristic:{action.resolution}"),
        (LEARNED, "rejection", "default"),
    ):
        settings = SpeculativeSettings(
            rule=rule, codec=planned.codec, controller=control, pipelined=False
        )
        fixed = action if control == static else None
        found.append(
            texts.row(RUNTIME, way, case.seed, fixed) | answers.costs(question, settings, pace)
        )
    return [{name: row[name] for name in COLUMNS} for row in found]


COLUMNS = (
    *("source", "temperature", "way", "episode", "length", "resolution"),
    *("tokens", "seconds", "calls", "bits", "bytes"),
)


def throughput(rows: list[Row]) -> Interval:
    """Return tokens per second over all episodes."""
    return paired(_per_second, *_columns(rows))


def gain(rows: list[Row], over: list[Row]) -> Interval:
    """Return how many tokens per second more `rows` have than the same episodes of another way."""
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


def _shares(rows: list[Row]) -> dict[str, float]:
    """Return tokens per forward of the target, and bits per token of blocks and of all messages."""
    sent = rows[0]["bits"] is not None
    tokens, calls, bits, size = (
        sum(row[name] or 0 for row in rows) for name in ("tokens", "calls", "bits", "bytes")
    )
    found = {"tokens_per_call": round(tokens / calls, 3)}
    if sent:
        found["block_bits_per_token"] = round(bits / tokens, 1)
        found["sent_bits_per_token"] = round(8 * size / tokens, 1)
    return found


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return throughputs by source, and at how many temperatures which way is ahead.

    DDQN and the heuristic are compared with the best static action; `all` has all temperatures
    together.
    """
    summary: dict[str, Any] = {}
    for (source,), some in grouped(rows, "source").items():
        found: dict[str, Any] = {}
        for (heat,), at in grouped(some, "temperature").items():
            ways = {way: _rounded(throughput(own)) for (way,), own in grouped(at, "way").items()}
            static = having(at, way=STATIC)[0]
            ways[STATIC] |= {"length": static["length"], "resolution": static["resolution"]}
            found[str(heat)] = ways
        speeds = [
            {way: each["tokens_per_s"] for way, each in ways.items()} for ways in found.values()
        ]
        summary[source] = {
            "temperatures": len(speeds),
            "ddqn_at_least_best_static": sum(each[LEARNED] >= each[STATIC] for each in speeds),
            "heuristic_below_best_static": sum(each[HEURISTIC] < each[STATIC] for each in speeds),
            "heuristic_below_ddqn": sum(each[HEURISTIC] < each[LEARNED] for each in speeds),
            "all": {
                way: _rounded(throughput(own)) | _shares(own)
                for (way,), own in grouped(some, "way").items()
            },
            "ddqn_over_static": gain(having(some, way=LEARNED), having(some, way=STATIC)).to_json(),
            **found,
        }
    return summary


def plot(rows: list[Row], path: Path) -> None:
    """Draw one panel per source."""
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
