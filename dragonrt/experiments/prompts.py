"""What generated texts go on from: sample questions and articles, or pieces of a corpus."""

from pathlib import Path

from dragonrt import bundled
from dragonrt.errors import DragonError
from dragonrt.experiments.corpus import read_corpus
from dragonrt.language.prompt import PromptFormat
from retrieval.documents import load

PROSE_WORDS = 24


def prompts(form: PromptFormat, count: int, corpus: Path | None = None) -> list[str]:
    """So many prompts: questions and beginnings of articles in turn, or pieces of the corpus.

    The pieces lie evenly spread in it. Raises DragonError for a corpus that is no text, or shorter.
    """
    if corpus is not None:
        words = read_corpus(corpus).evaluated.split()
        apart = len(words) // count
        if apart < PROSE_WORDS:
            raise DragonError(
                f"{corpus} has {len(words)} words to go on from, {count} prompts need "
                f"{count * PROSE_WORDS}: give --corpus a longer text"
            )
        starts = range(0, apart * count, apart)
        return [" ".join(words[start : start + PROSE_WORDS]) for start in starts]
    questions = [form.question_text((), question.text) for question in bundled.questions()]
    articles = sorted(bundled.documents("cloud").iterdir())
    found = []
    for number in range(count):
        if number % 2:
            words = load(articles[number // 2 % len(articles)]).text.split()
            found.append(" ".join(words[:PROSE_WORDS]))
        else:
            found.append(questions[number // 2 % len(questions)])
    return found
