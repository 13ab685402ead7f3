"""A side's resources in mode speculative, and those that the next answer inherits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from typing_extensions import override

from dragonrt.control.learned import controller
from dragonrt.control.policies import Controller
from dragonrt.control.verifier import TokenVerifier, Verifier
from dragonrt.distributions import ConformalThreshold
from dragonrt.modes.blocks.values import Untrained
from dragonrt.modes.registry import Counterpart, Host, Resources
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import AnswerOpened, Record, ThresholdMoved


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeResources(Resources):
    """`controller` and `verifier` were trained for the models.

    `threshold` is C-SQS's after earlier answers. `rate` gives the uplink's bit/s at a time, if it
    is known.
    """

    controller: Controller | None = None
    verifier: TokenVerifier | None = None
    threshold: ConformalThreshold | None = None
    rate: Callable[[float], float] | None = None

    @override
    def recorded(self) -> "SpeculativeResources":
        verifier = self.verifier and Untrained()
        return replace(self, controller=None, verifier=verifier, rate=None)


def prepare(
    host: Host, others: Mapping[str, Counterpart], settings: SpeculativeSettings
) -> SpeculativeResources:
    """Return the resources of a side. Raises DragonError for parts that do not fit its models.

    Settings that need parts do not travel to the cloud.
    """
    chooses = verifies = None
    if settings.controller is not None:
        chooses = host.controller(settings.controller)
    if settings.stopping == "specdec++":
        (cloud,) = others.values()
        verifies = host.verifier("specdec++", settings.verifier, cloud.fingerprint)
    return SpeculativeResources.of(host, controller=chooses, verifier=verifies)


def check(settings: SpeculativeSettings, model: str) -> None:
    """Raise ControlError for a file that does not hold what the settings say."""
    if settings.controller is not None:
        controller(settings.controller, model)
    if settings.verifier is not None:
        Verifier.load(Path(settings.verifier))


def carry(resources: SpeculativeResources, records: Sequence[Record]) -> SpeculativeResources:
    """Return the resources of the next answer, which continues C-SQS's threshold."""
    counts = AnswerCounts()
    for record in records:
        if isinstance(record.event, AnswerOpened | ThresholdMoved):
            counts.take(record)
    dropped = counts.dropped_mass
    return resources if dropped is None else replace(resources, threshold=dropped.threshold)
