"""`qs-throughput`: tokens per second over temperature, for every way to choose blocks (QSV Fig. 4).

Over a Markov uplink (the link the bundled controller was trained for): the cloud alone, S-Q and Q-S
with the best fixed action, the heuristic, Double DQN. On recorded texts: many episodes, so that a
grid over all fixed actions can be searched, on every other text, and small differences be seen on
the rest. And by the runtime in virtual time, with the actions that the grid chose.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragonrt import bundled
from dragonrt.control.trained import Action, Heuristic, Static, controller
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.speculative.settings import SpeculativeSettings
from scripts.lab.intervals import Interval, Row, grouped, having, paired, ratio, table
from scripts.lab.model_pair import ModelPair, Tasks
from scripts.lab.prompt import bundled_prompts
from scripts.lab.recording import (
    CODEC,
    LENGTHS,
    LINK,
    RESOLUTIONS,
    IterationCosts,
    RecordedEpisodes,
)
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.speculation import BlockPace, RecalledAnswers, model_pair, question_of
from scripts.papers.texts import kind_of, prompts

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
PROMPTS = 40
"""Of a corpus, which the tasks are drawn from."""
_HELD_OUT = 7_000_000
"""Where the numbers of tasks and courses begin: none that the controller was trained on."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The answers of a pair of models at one temperature, of the tasks of these numbers.

    They go on from the prompts of a corpus, or from the sample questions and documents.
    """

    pair: tuple[str, str]
    corpus: Path | None
    tokens: int
    temperature: float
    seeds: range

    def load(self) -> tuple[ModelPair, Tasks]:
        model = model_pair(*self.pair).target
        own = bundled_prompts(model)
        if self.corpus is not None:
            own = tuple(prompts(model, PROMPTS, [self.corpus]))
        return model_pair(*self.pair, own[0]), Tasks(own, (self.temperature,), self.tokens)

    def row(self, source: str, way: str, episode: int, action: Action | None, costs: Row) -> Row:
        """Return the columns of an answer; a controller has no fixed action."""
        return {
            "kind": self.corpus and kind_of(self.corpus),
            "source": source,
            "temperature": self.temperature,
            "way": way,
            "episode": episode,
            "length": action and action.length,
            "resolution": action and action.resolution,
            **{name: costs.get(name) for name in ("tokens", "seconds", "calls", "bits", "bytes")},
        }


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per source, temperature, way and episode or answer."""
    heats = settings.size(TEMPERATURES, TEMPERATURES_QUICK)
    tokens = settings.size(TOKENS, TOKENS_QUICK)
    count = settings.repeats * settings.size(TEXTS, 3)
    answers = settings.repeats * settings.size(ANSWERS, 1)
    first = _HELD_OUT + settings.seed * count
    seeds = range(first, first + count)
    texts = [
        Texts(settings.pair, corpus, tokens, heat, seeds)
        for corpus in settings.corpora or (None,)
        for heat in heats
    ]
    total = len(texts) * (1 + answers)
    rows = measure_all(_record, texts, lambda done, _: progress(done, total), processes=True)
    chosen = {
        (row["kind"], row["temperature"]): Action(row["length"], row["resolution"])
        for row in having(rows, way=STATIC)
    }
    cases = [
        (each, first + number, chosen[each.corpus and kind_of(each.corpus), each.temperature])
        for each in texts
        for number in range(answers)
    ]
    return rows + measure_all(
        _answer, cases, lambda done, _: progress(len(texts) + done, total), processes=True
    )


def _record(texts: Texts) -> list[Row]:
    """Run the controllers on every other text; on the rest the grid finds the best fixed action."""
    pair, tasks = texts.load()
    recorded = pair.record(tasks, CODEC, RESOLUTIONS, texts.seeds)
    costs = IterationCosts.over(LINK, pair.draft.name, pair.target.vocabulary)
    searched, held_out = (
        RecordedEpisodes(recorded[start::2], RESOLUTIONS, costs) for start in (0, 1)
    )
    first, count = texts.seeds.start, EPISODES * len(recorded) // 2
    episodes = range(first, first + count)
    action = searched.best_fixed(LENGTHS, episodes)
    tokens = texts.tokens
    alone = {"tokens": tokens, "seconds": tokens * costs.target_s, "calls": tokens}
    rows = [texts.row(RECORDED, CLOUD, first, None, alone)]
    for way, control, fixed in (
        (STATIC, Static(action), action),
        (HEURISTIC, Heuristic(action.resolution), None),
        (LEARNED, controller("default", pair.draft.name), None),
    ):
        for episode in episodes:
            score = held_out.score(control, [episode])
            own = {"tokens": score.tokens, "seconds": score.seconds, "calls": score.iterations}
            rows.append(texts.row(RECORDED, way, episode, fixed, own))
    return rows


def _answer(case: tuple[Texts, int, Action]) -> list[Row]:
    """Return one answer of the runtime in every way; the fixed ones take the action."""
    texts, seed, action = case
    pair, tasks = texts.load()
    prompt, sampler, _ = tasks.choose(seed)
    costs = IterationCosts.over(LINK, pair.draft.name, pair.target.vocabulary)
    pace = BlockPace(costs.draft_s, costs.target_s, LinkProfile.load(LINK), seed)
    question = question_of(prompt, seed, sampler.temperature, texts.tokens)
    answers = RecalledAnswers(pair, prompt.tokens, question)
    static = f"static:{action.length}:{action.resolution}"
    rows = [texts.row(RUNTIME, CLOUD, seed, None, answers.streamed(pace))]
    for way, rule, control in (
        (S_Q, "sample-quantize", static),
        (STATIC, "rejection", static),
        (HEURISTIC, "rejection", f"heuristic:{action.resolution}"),
        (LEARNED, "rejection", str(bundled.controller_path("default", pair.draft.name))),
    ):
        settings = SpeculativeSettings(rule=rule, codec=CODEC, controller=control, pipelined=False)
        fixed = action if control == static else None
        rows.append(texts.row(RUNTIME, way, seed, fixed, answers.costs(settings, pace)))
    return rows


def throughput(rows: list[Row]) -> Interval:
    """Return tokens per second over all episodes."""
    return paired(ratio, *([row[name] for row in rows] for name in ("tokens", "seconds")))


def gain(rows: list[Row], over: list[Row]) -> Interval:
    """Return how many tokens per second more `rows` have than the same episodes of another way."""
    theirs = {(row["temperature"], row["episode"]): row for row in over}
    same = [theirs[row["temperature"], row["episode"]] for row in rows]
    columns = (
        [row[name] for row in some] for some in (rows, same) for name in ("tokens", "seconds")
    )
    return paired(lambda a, s, b, t, axis: ratio(a, s, axis) - ratio(b, t, axis), *columns)


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return tokens per second by source, temperature and way, and DDQN's gain over Q-S static."""
    summary: dict[str, Any] = {}
    for (source,), some in grouped(rows, "source").items():
        speeds = {
            str(heat): {
                way: throughput(own).to_json() for (way,), own in grouped(at, "way").items()
            }
            for (heat,), at in grouped(some, "temperature").items()
        }
        learned, static = (having(some, way=way) for way in (LEARNED, STATIC))
        summary[source] = {
            "tokens_per_s": speeds,
            "ddqn_at_least_best_static": sum(
                each[LEARNED]["mean"] >= each[STATIC]["mean"] for each in speeds.values()
            ),
            "ddqn_over_static": gain(learned, static).to_json(),
            "all": {way: throughput(own).to_json() for (way,), own in grouped(some, "way").items()},
        }
    columns = ("tokens", "calls", "bits", "bytes", "length", "resolution")
    return summary | {"means": table(rows, "source", "way", "temperature", mean=columns)}


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
