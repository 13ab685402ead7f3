"""Modes without a driver: their work is done at once, by postprocessing it."""

from collections.abc import Mapping
from typing import TypeVar

from dragonrt.modes.mode import Computed, Effects, Joined, Mode, Prepared, Received, Work
from dragonrt.testing.scripted import SimulatedModel, predictions_of
from dragonrt.wire.messages import SessionMessage

E = TypeVar("E")
TEXTS = ((0, 1, 2, 0, 2, 1), (1, 1, 0))
"""What the device may look up drafts in."""


def wanted(mode: Mode) -> Work:
    """The next work, of which there is some."""
    work = mode.wanted()
    assert work is not None
    return work


def work_off(mode: Mode, model: SimulatedModel, now: float = 0.0) -> Effects:
    """All that the mode wants, one after the other, and all that it led to."""
    everything = Effects()
    while (work := mode.wanted()) is not None:
        news = mode.handle(Computed(work, work.postprocess(predictions_of(model, work)), 0.01), now)
        everything.events += news.events
        everything.send += news.send
        everything.leave += news.leave
        everything.preempt |= news.preempt
        everything.finished = everything.finished or news.finished
        everything.failed = everything.failed or news.failed
    return everything


def answer(device: Mode, others: Mapping[str, Mode], models: Mapping[str, SimulatedModel]) -> None:
    """Turn about: each side does all it can, then its messages arrive, in order."""
    for name, other in others.items():
        other.handle(Prepared(), 0)
        other.handle(Joined("device", 1), 0)
        device.handle(Joined(name, 1), 0)
    waiting = device.handle(Prepared(texts=TEXTS), 0).send
    while True:
        effects = work_off(device, models["device"])
        waiting += effects.send
        if effects.finished is not None or not waiting:
            return
        replies: list[tuple[str, SessionMessage]] = []
        for name, message in waiting:
            sent = others[name].handle(Received("device", message), 0).send
            replies += [(name, each) for _, each in sent]
        for name, other in others.items():
            sent = work_off(other, models[name]).send
            replies += [(name, each) for _, each in sent]
        waiting = []
        for name, reply in replies:
            effects = device.handle(Received(name, reply), 0)
            waiting += effects.send
            if effects.finished is not None:
                return


def of(effects: Effects, kind: type[E]) -> list[E]:
    """The events of a kind."""
    return [event for event in effects.events if isinstance(event, kind)]
