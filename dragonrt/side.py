"""The two sides of an answer."""

from typing import Literal

Side = Literal["device", "cloud"]


def other(side: Side) -> Side:
    """The side across the network."""
    return "cloud" if side == "device" else "device"
