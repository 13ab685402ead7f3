"""What happens in one simulated run: the link, the speeds, the questions and what goes wrong."""

import random
from dataclasses import dataclass, replace

from dragonrt.runtime.modes.dragon import OnLoss
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.scheduler import Placement
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.simulation.drafter import Script
from dragonrt.simulation.schedule import Schedule

STOP = 0
"""The token that ends an answer: a Script's own."""

WAYS = [("coupled", placement) for placement in Placement] + [
    ("algorithm1", placement) for placement in Placement if placement is not Placement.BOTH
]
STALLS_S = (0.5, 5.0, 45.0)
"""Below and above what the runtime waits for before it gives a side up."""


@dataclass(frozen=True, slots=True)
class Question:
    """One answer that is asked for, `start_s` seconds into the run.

    After `end_s` seconds it is given up: cancelled as a task or, if `stops`, asked to end.
    """

    plan: Plan
    script: Script
    device: int = 0
    on_loss: OnLoss = "alone"
    start_s: float = 0.0
    end_s: float | None = None
    stops: bool = False


@dataclass(frozen=True, slots=True)
class ModelStall:
    """The forward of that number, on that side, takes `length_s` longer than it should."""

    side: Side
    forward: int
    length_s: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run that its seed repeats exactly. There is a schedule, so a link, for each device."""

    seed: int
    schedules: tuple[Schedule, ...]
    questions: tuple[Question, ...]
    stall: ModelStall | None = None
    killed_s: float | None = None
    """When the cloud's process ends; the next one is there at once."""

    @classmethod
    def draw(cls, seed: int) -> "Scenario":
        """The scenario of this seed: half of all have faults, a third several sessions."""
        chance = random.Random(f"scenario {seed}")
        faulty = chance.random() < 0.6
        cuts = chance.choice((0, 1, 1, 2, 3)) if faulty else 0
        schedule = Schedule.draw(seed, cuts=cuts, stalls=faulty and chance.random() < 0.2)
        schedules = [schedule]
        if chance.random() < 0.15:
            schedules.append(replace(schedule, seed=schedule.seed + 1, latency_s=0.03, faults=()))
        count = chance.choice((1, 1, 1, 1, 2, 3))
        questions = [
            _question(chance, number, number % len(schedules))
            for number in range(max(count, len(schedules)))
        ]
        stall = None
        if chance.random() < 0.1:
            sides: tuple[Side, ...] = ("device", "cloud")
            stall = ModelStall(chance.choice(sides), chance.randrange(12), chance.choice(STALLS_S))
        killed_s = chance.uniform(0.0, 2.0) if faulty and chance.random() < 0.1 else None
        return cls(seed, tuple(schedules), tuple(questions), stall, killed_s)

    @property
    def may_lose_the_cloud(self) -> bool:
        """Whether something breaks a connection or holds a model up too long."""
        broken = self.killed_s is not None or any(schedule.faults for schedule in self.schedules)
        return broken or (self.stall is not None and self.stall.length_s > 1.0)


def _question(chance: random.Random, number: int, device: int) -> Question:
    rule, placement = chance.choice(WAYS)
    on_loss: OnLoss = "wait" if chance.random() < 0.5 else "alone"
    given_up = chance.random() < 0.1
    return Question(
        plan=Plan(
            seed=8 * chance.randrange(2**40) + number,
            sampler=Sampler(
                temperature=chance.choice((0.0, 0.5, 0.8, 1.2)),
                top_k=chance.choice((0, 0, 4)),
                top_p=chance.choice((1.0, 1.0, 0.9)),
            ),
            rule=rule,
            placement=placement,
            codec=chance.choice(("topp:0.8", "topp:0.95", "topk:8:residual", "topk:4:renorm")),
            max_tokens=chance.choice((1, 6, 12, 20)),
            stop_tokens=(STOP,),
            run_ahead=chance.choice((1, 2, 4, 8, 32)),
            follow=chance.random() < 0.7,
        ),
        script=Script(
            chance.randrange(2**32),
            vocabulary=16,
            sharpness=chance.choice((1.0, 2.0, 4.0)),
            disagreement=chance.choice((0.0, 0.4, 1.0, 2.0)),
        ),
        device=device,
        on_loss=on_loss,
        start_s=chance.choice((0.0, 0.0, chance.uniform(0.0, 1.0))),
        end_s=chance.uniform(0.0, 1.5) if given_up else None,
        stops=chance.random() < 0.5,
    )
