"""Language models: rows of documents that share their newest tokens, exactly and fast."""

from dragonrt.errors import ModelError
from dragonrt.language.document import DocumentKV
from dragonrt.language.model import LanguageModel
from dragonrt.language.preemption import Preempted, Preemption
from dragonrt.language.prompt import PromptFormat
from dragonrt.language.relevance import RowWeights
from dragonrt.language.sequence import Sequence

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
