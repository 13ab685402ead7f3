"""The languages of questions, as far as it is known what the model reads."""

from dragonrt.backends.model import LanguageModel
from dragonrt.bundled import LARGER_MODEL
from dragonrt.errors import DragonError
from retrieval.languages import language_of


class OtherLanguageError(DragonError):
    """A question in a language that the model does not read."""


def check_language(model: LanguageModel, question: str) -> None:
    """Raise OtherLanguageError if the question is in a language that the model does not read."""
    reads = model.prompt.template.languages
    if reads and (language := language_of(question)) and language not in reads:
        raise OtherLanguageError(
            f"the question seems to be in {language}, but {model.name} reads {', '.join(reads)}: "
            f"ask in that, or run another model on both sides, such as --model {LARGER_MODEL}"
        )
