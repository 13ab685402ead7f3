"""The two sides of an answer: the device that was asked, and the cloud that helps it."""

from typing import Literal

Side = Literal["device", "cloud"]


def other(side: Side) -> Side:
    """The side across the network."""
    return "cloud" if side == "device" else "device"
