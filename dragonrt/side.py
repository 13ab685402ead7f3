"""The sides of an answer, device and cloud, and names of torch devices and number types."""

from typing import Literal

Side = Literal["device", "cloud"]
SIDES: tuple[Side, ...] = ("device", "cloud")
TorchDevice = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]


def other(side: Side) -> Side:
    """Return the other side: "cloud" for "device", "device" for "cloud"."""
    return "cloud" if side == "device" else "device"
