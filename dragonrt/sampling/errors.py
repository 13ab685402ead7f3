"""The error of the package: sampling parameters that make no sense."""

from dragonrt.errors import DragonError


class SamplingError(DragonError):
    """A seed, a sampling parameter, a rule's name or a relevance that cannot be used."""
