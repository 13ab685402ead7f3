"""Oracles: the text that every run of a mode must give.

Of the program an oracle has the hash of a text and the values that are asked for; all that it
computes is `brute_force`'s: no queue, no block under way, no message. A run that differs has a
defect (SPEC 0).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from tests.oracles import dragon, federated, speculative, sprinter
from tests.oracles.asked import Asked, Attendance, Decide, Models

ORACLES: Mapping[type[Settings], Callable[[Asked, Any], Decide]] = {
    DragonSettings: dragon.oracle,
    FederatedSettings: federated.oracle,
    SpeculativeSettings: speculative.oracle,
    SprinterSettings: sprinter.oracle,
}
"""What decides the next tokens of an answer, by the settings of its mode."""


def oracle(
    question: Question,
    settings: Settings,
    models: Models,
    course: Attendance | None = None,
    resources: Any = None,
    texts: Sequence[Sequence[int]] = (),
) -> list[int]:
    """Return the answer's tokens, the accepted ones and the stop token included.

    Without a `course` the other side is there all the time. `resources` are the device's, `texts`
    are what it looks up in.
    """
    asked = Asked(question, models, course or Attendance(), resources, texts)
    decide = ORACLES[type(settings)](asked, settings)
    text = TokenPrefix(start_hash(question.seed), question.accepted)
    while not asked.ends(text.tokens):
        for token in decide(text):
            if not asked.ends(text.tokens):
                text.append(token)
    return text.tokens
