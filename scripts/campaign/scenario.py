"""A simulated run: its links, the speeds of its sides, its requests and its faults."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dragonrt.modes import MODES
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Resources, Settings
from dragonrt.modes.speculative.settings import DraftSource, SpeculativeSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import SIDES, Side
from dragonrt.testing.faults import Cut, Fault, HalfOpen, Schedule, Stall
from dragonrt.testing.scripted import Script, ScriptedModel, scripted_resources
from dragonrt.timeouts import USUAL, Timeouts
from scripts.campaign.drawn_settings import drawn_settings
from tests.oracles.asked import Models
from tests.oracles.brute_force import raced, sampled

STOP = 0
"""The token that ends an answer: a Script's own."""
VOCABULARIES = (16, 16, 16, 40, 129, 300)
SMALL = 40
"""No larger vocabulary is used where its distributions would keep a slow link for too long."""
MARKER_TOKENS = (3, 4)
"""What a cloud reads for tokens that its device withholds."""

LATENCIES_S = (0.0, 0.005, 0.05, 0.2)
JITTERS = (0.0, 0.2, 1.0)
"""Jitter as a part of the latency."""
BANDWIDTHS = (None, 50e3, 500e3)
"""bit/s"""
DECODES_S = (0.001, 0.02, 0.1)
PREPARATIONS_S = (0.0, 0.05, 0.5)
STALLS_S = (0.5, 5.0, 45.0)
"""Below and above what the runtime waits for before it gives a side up."""
FOR_EVER_S = 1e6
PATIENCES = (USUAL, replace(USUAL, answer_s=300.0))
"""With the longer one nothing can hide behind a side that is given up."""


@dataclass(frozen=True, slots=True)
class Request:
    """One question to answer, asked `start_s` seconds after the run began.

    After `end_s` seconds it is given up: cancelled as a task or, if `stops`, asked to end.
    """

    question: Question
    settings: Settings
    script: Script
    device: int = 0
    start_s: float = 0.0
    end_s: float | None = None
    stops: bool = False


@dataclass(frozen=True, slots=True)
class ModelStall:
    """Makes forward number `forward` of the device or first cloud `length_s` longer, or endless."""

    side: Side
    forward: int
    length_s: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """A simulated run: `mode` and `seed` determine all that happens in it.

    `schedules` has for each device a link to every cloud. `weights` has an entry per cloud: one,
    but several in mode `federated`.
    """

    mode: str
    seed: int
    schedules: tuple[tuple[Schedule, ...], ...]
    requests: tuple[Request, ...]
    weights: tuple[float, ...] = (1.0,)
    stall: ModelStall | None = None
    killed_s: float | None = None
    """When the first cloud's process ends; the next one is there at once."""
    timeouts: Timeouts = USUAL

    documents: bool = False
    """Whether there are tokens to look up in what each side reads."""

    @classmethod
    def draw(cls, seed: int, mode: str | None = None) -> "Scenario":
        """Return the scenario of `seed` in `mode` (None: any mode); about half have faults."""
        plain = cls.draw_plain(seed, mode)
        chance = random.Random(f"more {plain.mode} {seed}")
        slow = plain.schedules[0][0].bandwidth == min(filter(None, BANDWIDTHS))
        slow |= any(each.settings.constant_rate[0] for each in plain.requests)
        vocabulary = chance.choice([each for each in VOCABULARIES if each <= SMALL or not slow])
        requests = tuple(_widened(chance, each, vocabulary) for each in plain.requests)
        documents = chance.random() < 0.8
        drafts = tuple(_looking_up(chance, each) for each in requests)
        loses = chance.random() < 0.5
        drafts = tuple(replace(each, script=replace(each.script, loses=loses)) for each in drafts)
        return replace(plain, requests=drafts, documents=documents)

    @classmethod
    def draw_plain(cls, seed: int, mode: str | None = None) -> "Scenario":
        """Return the scenario of `draw` with a small vocabulary and without documents."""
        mode = mode or random.Random(f"mode {seed}").choice(tuple(MODES))
        chance = random.Random(f"{mode} {seed}")
        workers = chance.choice((2, 2, 3, 4)) if MODES[mode].several else 1
        faulty = chance.random() < 0.6
        links = [
            _link(chance, workers * seed + worker, faulty and chance.random() < 1.2 / workers)
            for worker in range(workers)
        ]
        devices = 1
        if chance.random() < 0.15:
            devices = 2
        count = max(devices, chance.choice((1, 1, 1, 1, 2, 3)))
        requests = [
            _request(chance, mode, number, number % devices, links[0]) for number in range(count)
        ]
        stall = None
        if chance.random() < 0.1:
            stall = ModelStall(chance.choice(SIDES), chance.randrange(12), chance.choice(STALLS_S))
        elif chance.random() < 0.08:  # a device's own model is what it cannot do without
            stall = ModelStall("cloud", chance.randrange(4), FOR_EVER_S)
        return cls(
            mode,
            seed,
            (tuple(links), *[tuple(map(_neighbour, links))] * (devices - 1)),
            tuple(requests),
            tuple(chance.choice((0.2, 0.5, 1.0)) for _ in links),
            stall,
            chance.uniform(0.0, 2.0) if faulty and chance.random() < 0.1 else None,
            chance.choice(PATIENCES),
        )

    @property
    def clouds(self) -> dict[str, float]:
        """Return the weight of each cloud, by name: "cloud", or "worker 0", "worker 1" and on."""
        if len(self.weights) == 1:
            return {"cloud": self.weights[0]}
        return {f"worker {number}": weight for number, weight in enumerate(self.weights)}

    @property
    def vocabulary(self) -> int:
        """Return the size of all models' vocabulary, in tokens."""
        return self.requests[0].script.vocabulary

    def texts(self, request: Request, side: Side) -> list[list[int]]:
        """Return one side's documents: a likely answer, twice, with a tenth of its tokens random.

        So drafts that are copied from the documents are accepted at times.
        """
        if not self.documents:
            return []
        chance = random.Random(f"documents {side} {request.script.seed}")
        question, models = request.question, list(self.models(request).values())[:2]
        text = TokenPrefix(start_hash(question.seed))
        while len(text) < question.max_tokens:
            said = [model.predict(len(text), text.hash).p for model in models]
            law = sampled(question.sampler, (said[0] + said[1]) / 2)
            text.append(raced(question.seed, len(text), law))

        def read(token: int) -> int:
            return chance.randrange(self.vocabulary) if chance.random() < 0.1 else token

        return [[read(token) for token in text.tokens] for _ in range(2)]

    @property
    def faulty(self) -> bool:
        """Return whether a fault breaks a connection, or delays a model for over a second."""
        faults = any(link.faults for links in self.schedules for link in links)
        stalled = self.stall is not None and self.stall.length_s > 1.0
        return faults or stalled or self.killed_s is not None

    def resources(self, request: Request) -> Resources:
        """Return the Resources of the device for a request."""
        found: Resources = scripted_resources(
            request.settings, self.vocabulary, self.clouds, timeouts=self.timeouts
        )
        return found

    def models(self, request: Request) -> Models:
        """Return every side's model in this answer, by the side's name, as the oracle uses them."""
        return {
            name: ScriptedModel("device" if name == "device" else "cloud", script)
            for name, script in self.scripts(request).items()
        }

    def scripts(self, request: Request) -> Mapping[str, Script]:
        """Return the Script that every side's model follows in this answer, by the side's name."""
        script = request.script
        if len(self.weights) == 1:
            return {"device": script, "cloud": script}
        return {"device": script} | {
            name: replace(script, steady=False, worker=number)
            for number, name in enumerate(self.clouds)
        }


def drawn_link(
    seed: int, *, cuts: int = 0, stalls: bool = False, half_open: bool = False
) -> Schedule:
    """Return a random link of `seed`, with `cuts` connections that end early and other faults."""
    chance = random.Random(seed)
    latency_s = chance.choice(LATENCIES_S)
    faults: list[Fault | None] = [_cut(chance) for _ in range(cuts)]
    if stalls:
        faults.append(Stall(chance.uniform(0.0, 1.0), chance.choice((0.3, 3.0, 20.0))))
    if half_open:
        faults.append(HalfOpen(chance.choice((*zip(SIDES), SIDES)), chance.uniform(0.0, 1.0)))
    return Schedule(
        seed=seed,
        latency_s=latency_s,
        jitter_s=latency_s * chance.choice(JITTERS),
        bandwidth=chance.choice(BANDWIDTHS),
        device_decode_s=chance.choice(DECODES_S),
        cloud_decode_s=chance.choice(DECODES_S),
        device_prepare_s=chance.choice(PREPARATIONS_S),
        cloud_prepare_s=chance.choice(PREPARATIONS_S),
        faults=tuple(faults),
    )


def _cut(chance: random.Random) -> Cut:
    """A cut at a random time, byte or message; early ones hit the handshake and the Open."""
    side, reset = chance.choice(SIDES), chance.random() < 0.5
    match chance.choice(("seconds", "bytes", "writes")):
        case "seconds":
            return Cut(side, after_s=chance.uniform(0.0, 2.0), reset=reset)
        case "bytes":
            return Cut(side, after_bytes=chance.randrange(3000), reset=reset)
        case _:
            return Cut(side, after_writes=chance.randrange(40), reset=reset)


def _link(chance: random.Random, seed: int, faulty: bool) -> Schedule:
    cuts = chance.choice((0, 1, 1, 2, 3)) if faulty else 0
    stalls, half_open = chance.random() < 0.2, chance.random() < 0.1
    return drawn_link(seed, cuts=cuts, stalls=faulty and stalls, half_open=faulty and half_open)


def _neighbour(schedule: Schedule) -> Schedule:
    """Another device's link to the same cloud, on which nothing goes wrong."""
    return replace(schedule, seed=schedule.seed + 1, latency_s=0.03, faults=())


def _request(chance: random.Random, mode: str, number: int, device: int, link: Schedule) -> Request:
    given_up = chance.random() < 0.1
    sampler = Sampler(
        temperature=chance.choice((0.0, 0.5, 0.8, 1.2)),
        top_k=chance.choice((0, 0, 4)),
        top_p=chance.choice((1.0, 1.0, 0.9)),
    )
    if mode == "dragon":
        sampler = replace(sampler, min_p=chance.choice((0.0, 0.0, 0.05, 0.3)))
    question = Question(
        prompt=str(number),
        seed=8 * chance.randrange(2**40) + number,
        sampler=sampler,
        max_tokens=chance.choice((1, 6, 12, 20)),
        stop_tokens=(STOP,),
    )
    seed = chance.randrange(2**32)
    script = Script(
        seed,
        vocabulary=VOCABULARIES[0],
        sharpness=chance.choice((1.0, 2.0, 4.0)),
        disagreement=chance.choice((0.0, 0.4, 1.0, 2.0)),
        steady=seed % 2 == 0,
    )
    return Request(
        replace(question, reweight_every=0 if script.steady else 1),
        drawn_settings(chance, mode, link),
        script,
        device=device,
        start_s=chance.choice((0.0, 0.0, chance.uniform(0.0, 1.0))),
        end_s=chance.uniform(0.0, 1.5) if given_up else None,
        stops=chance.random() < 0.5,
    )


def _widened(chance: random.Random, request: Request, vocabulary: int) -> Request:
    """With so many tokens and stops; a sampler that keeps few of them keeps another number."""
    sampler, few = request.question.sampler, chance.randint(1, 5)
    sampler = replace(sampler, top_k=few if sampler.top_k else 0)
    question = replace(request.question, sampler=sampler)
    stop = chance.choice((0.02, 0.15))
    script = replace(request.script, vocabulary=vocabulary, stop=stop)
    return replace(request, question=question, script=script)


def _looking_up(chance: random.Random, request: Request) -> Request:
    """With drafts that are looked up, at times, where nothing is set that reads a model's."""
    settings = request.settings
    if not isinstance(settings, SpeculativeSettings) or settings.controller:
        return request
    drafts: DraftSource = chance.choice(("model", "lookup"))
    return replace(request, settings=replace(settings, draft=drafts))
