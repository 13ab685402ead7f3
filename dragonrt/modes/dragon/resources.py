"""What a side brings to an answer of mode dragon."""

from dataclasses import dataclass

from dragonrt.control.profiler import DecodeProfile
from dragonrt.modes.registry import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class DragonResources(Resources):
    """`profile` is the side's offline decode profile."""

    profile: DecodeProfile | None = None
