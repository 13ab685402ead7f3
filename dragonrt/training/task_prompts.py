"""What models are asked to continue in training: questions about documents, and texts."""

from pathlib import Path

from dragonrt import bundled
from dragonrt.errors import TrainingError
from dragonrt.language import LanguageModel
from retrieval import DocumentError
from retrieval.documents import load

PROMPT_TOKENS = 64
"""How much of a text is given to be continued."""


def bundled_prompts(model: LanguageModel) -> tuple[tuple[int, ...], ...]:
    """The sample questions, each with a document that helps, and the sample documents' beginnings.

    As tokens, in the form that the model is asked in. There are about as many of either kind: the
    questions come several times.
    """
    asked = [
        _document(model, bundled.documents(side) / name)
        + model.prompt.question_text((), question.text)
        for question in bundled.questions()
        for side, name in question.evidence
    ]
    begun = [
        _document(model, path)
        for side in ("device", "cloud")
        for path in sorted(bundled.documents(side).iterdir())
    ]
    texts = asked * max(1, len(begun) // len(asked))
    prompts = [model.encode(text) for text in texts]
    prompts += [model.encode(text)[:PROMPT_TOKENS] for text in begun]
    return tuple(tuple(tokens) for tokens in prompts)


def corpus_prompts(model: LanguageModel, path: Path) -> tuple[tuple[int, ...], ...]:
    """Pieces of a text file, as tokens. Raises TrainingError if there is none."""
    try:
        tokens = model.encode(load(path).text)
    except DocumentError as error:
        raise TrainingError(f"{path} {error}") from None
    starts = range(0, len(tokens) - PROMPT_TOKENS + 1, PROMPT_TOKENS)
    if not starts:
        raise TrainingError(
            f"{path} has {len(tokens)} tokens: a corpus needs at least {PROMPT_TOKENS}"
        )
    return tuple(tuple(tokens[start : start + PROMPT_TOKENS]) for start in starts)


def _document(model: LanguageModel, path: Path) -> str:
    document = load(path)
    return model.prompt.document_text(document.title, document.text)
