"""What can be wrong with a model or with what it is asked to do."""

from dragonrt.errors import DragonError


class ModelError(DragonError):
    """A model that cannot be loaded, or input that does not fit the model.

    The one-line message says what was wrong and what to do.
    """
