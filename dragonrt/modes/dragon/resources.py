"""A side's resources in mode dragon."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dragonrt.control.profiler import DecodeProfile
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.registry import Counterpart, Host, Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class DragonResources(Resources):
    """`profile` is the side's offline decode profile."""

    profile: DecodeProfile | None = None


def prepare(
    host: Host, others: Mapping[str, Counterpart], settings: DragonSettings
) -> DragonResources:
    """Return the resources of a side."""
    found = DragonResources.of(host, profile=host.profile)
    if host.side == "cloud" and settings.redacts:  # in a long withheld run it receives nothing
        timeouts = replace(found.timeouts, answer_s=found.timeouts.idle_s)
        return replace(found, timeouts=timeouts)
    return found
