"""The error of this package."""

from dragonrt.errors import DragonError


class TrainingError(DragonError):
    """Something that cannot be trained, or learned from; one line says what to do about it."""
