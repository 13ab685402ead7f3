"""The error of this package."""

from dragonrt.errors import DragonError


class ControlError(DragonError):
    """A controller that cannot be made of what was given; one line says what can."""
