"""A side's resources in mode speculative, and those that the next answer inherits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dragonrt.control.learned import controller
from dragonrt.control.policies import Controller
from dragonrt.distributions import ConformalThreshold
from dragonrt.modes.registry import Counterpart, Host, Resources
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import AnswerOpened, Record, ThresholdMoved


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeResources(Resources):
    """`controller` was trained for the draft model.

    `threshold` is C-SQS's after earlier answers. `rate` gives the uplink's bit/s at a time, if it
    is known.
    """

    controller: Controller | None = None
    threshold: ConformalThreshold | None = None
    rate: Callable[[float], float] | None = None


def prepare(
    host: Host, others: Mapping[str, Counterpart], settings: SpeculativeSettings
) -> SpeculativeResources:
    """Return the resources of a side. Raises DragonError for parts that do not fit its models.

    Settings that need parts do not travel to the cloud.
    """
    chooses = None
    if settings.controller is not None:
        chooses = host.controller(settings.controller)
    return SpeculativeResources.of(host, controller=chooses)


def check(settings: SpeculativeSettings, model: str) -> None:
    """Raise ControlError for a file that does not hold what the settings say."""
    if settings.controller is not None:
        controller(settings.controller, model)


def carry(resources: SpeculativeResources, records: Sequence[Record]) -> SpeculativeResources:
    """Return the resources of the next answer, which continues C-SQS's threshold."""
    counts = AnswerCounts()
    for record in records:
        if isinstance(record.event, AnswerOpened | ThresholdMoved):
            counts.take(record)
    dropped = counts.dropped_mass
    return resources if dropped is None else replace(resources, threshold=dropped.threshold)
