"""The answer that the oracle of a mode gives, for tests to compare with."""

from collections.abc import Sequence
from typing import Any

from dragonrt.modes.oracle import Asked, Attendance, Models
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.registry import entry_of
from dragonrt.modes.settings import Settings


def oracle(
    question: Question,
    settings: Settings,
    models: Models,
    course: Attendance | None = None,
    resources: Any = None,
    texts: Sequence[Sequence[int]] = (),
) -> list[int]:
    """Return the answer's tokens, the accepted ones and the stop token included.

    Without a `course` the other side is there all the time. `resources` are the
    device's, `texts` are what it looks up in.
    """
    asked = Asked(question, models, course or Attendance(), resources, texts)
    decide = entry_of(settings).oracle(asked, settings)
    text = TokenPrefix(start_hash(question.seed), question.accepted)
    while not asked.ends(text.tokens):
        for token in decide(text):
            if not asked.ends(text.tokens):
                text.append(token)
    return text.tokens
