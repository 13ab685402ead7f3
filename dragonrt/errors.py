"""Errors that a user sees as one line and a non-zero exit code.

    DragonError
    ├── ControlError           an unusable controller of block lengths or verifier of drafts
    ├── DistributionError      distributions that cannot be combined
    │   └── CodecError         a codec's name, vector or payload that the codec cannot use
    ├── LinkError              a link that cannot be connected or is lost, or is described wrongly
    ├── ModelError             a model that cannot be loaded, or input that does not fit it
    ├── SamplingError          an invalid random seed, sampling rule, or weight of a document
    ├── TrainingError          a network that cannot be trained, or unusable data
    └── WireError              why a connection or session ends: `dragonrt.wire.reasons`

An error that only one module raises is defined there. `retrieval` has its own RetrievalError.
"""


class DragonError(Exception):
    """The base of all errors that the user or the other side causes.

    The message is one line that says what was wrong and what to do. Packages subclass it; the
    command line prints the message without a traceback and exits with code 1.
    """


class ControlError(DragonError):
    """An unreadable controller of block lengths or verifier of drafts, or one for other models."""


class DistributionError(DragonError):
    """Distributions that cannot be combined, such as of vocabularies with different sizes."""


class CodecError(DistributionError):
    """A codec's name, a vector or a payload that the codec cannot use."""


class LinkError(DragonError):
    """A link that cannot be connected or is lost, or an invalid description of an emulated link."""


class ModelError(DragonError):
    """A model that cannot be loaded, or input that does not fit the model."""


class SamplingError(DragonError):
    """An invalid random seed, sampling rule, or weight of a document or side."""


class TrainingError(DragonError):
    """A network that cannot be trained, or data that it cannot learn from."""
