"""Language models: rows of documents that share their newest tokens, exactly and fast."""

from dragonrt.backends.model import LanguageModel
from dragonrt.backends.preemption import Preempted, Preemption
from dragonrt.backends.prompt import PromptFormat
from dragonrt.backends.relevance import RowWeights
from dragonrt.backends.sequence import Sequence
from dragonrt.backends.torch_.document import DocumentKV
from dragonrt.errors import ModelError

__all__ = [
    "DocumentKV",
    "LanguageModel",
    "ModelError",
    "Preempted",
    "Preemption",
    "PromptFormat",
    "RowWeights",
    "Sequence",
]
