"""Who decides how many tokens a block has, and how finely their distributions are sent."""

from pathlib import Path

from dragonrt import bundled
from dragonrt.control.learned import Encoding, Learned, NetworkWeights
from dragonrt.control.policies import Action, Controller, ControlState, Heuristic, Static
from dragonrt.errors import ControlError

VALID_FORMS = (
    "static:LENGTH:RESOLUTION, heuristic:RESOLUTION, default, or the FILE of a trained one"
)

__all__ = [
    "VALID_FORMS",
    "Action",
    "ControlError",
    "ControlState",
    "Controller",
    "Encoding",
    "Heuristic",
    "Learned",
    "NetworkWeights",
    "Static",
    "controller",
]


def controller(spec: str) -> Controller:
    """The controller that a specification names: one of `VALID_FORMS`.

    Raises ControlError with one line saying what is wrong.
    """
    match spec.split(":"):
        case ["static", length, resolution]:
            return Static(Action(_number(length, spec), _number(resolution, spec)))
        case ["heuristic", resolution]:
            return Heuristic(_number(resolution, spec))
        case ["static" | "heuristic", *_]:
            raise ControlError(f"{spec!r} is not a controller: write {VALID_FORMS}")
    return Learned.load(
        bundled.controller_path(spec) if spec in bundled.controllers() else Path(spec)
    )


def _number(text: str, spec: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise ControlError(f"{text!r} in {spec!r} is not a number: write {VALID_FORMS}")
    return int(text)
