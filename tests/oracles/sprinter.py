"""The text that every run of mode sprinter must give."""

from collections.abc import Sequence

from dragonrt.modes.prefix import TokenPrefix
from dragonrt.modes.sprinter import SprinterSettings
from tests.oracles.asked import Asked, Decide
from tests.oracles.brute_force import coded, corrected


def oracle(asked: Asked, settings: SprinterSettings) -> Decide:
    """Return what decides: the verifier where it says so, else the target (Algorithm 2)."""
    verifier = asked.resources.verifier
    threshold = verifier.threshold if settings.threshold is None else settings.threshold
    run = 0  # tokens since the target's last

    def decide(text: TokenPrefix) -> Sequence[int]:
        nonlocal run
        step, said = len(text), asked.models["device"].predict(len(text), text.hash)
        q = coded(settings.codec, asked.law("device", text))
        token, run = asked.draws(step, q), run + 1
        if asked.course.alone(step):
            return [token]
        likely = verifier.probability(said.hidden, said.p, token)
        if likely < threshold or run >= settings.run_length:
            token, run = corrected(asked.seed, step, token, q.p, asked.law("cloud", text)), 0
        return [token]

    return decide
