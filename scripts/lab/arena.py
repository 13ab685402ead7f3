"""The one way to get an answer in figures and benchmarks.

An arena is a device that is connected to the other sides of its answers: a cloud, or several
workers; in virtual time (`virtual_arena`), or in real processes (`sample_sides.LoadedSide`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dragonrt.control.learned import controller
from dragonrt.experiments.comparison import Given as Given
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.modes.question import Question
from dragonrt.modes.registry import Resources
from dragonrt.modes.settings import Settings
from dragonrt.node.backend_session import Prefiller
from dragonrt.node.client_session import ClientSession
from dragonrt.node.hosts import Hosts
from dragonrt.node.local_side import LocalSide
from dragonrt.node.main import Device
from dragonrt.privacy.redaction import MARKER
from dragonrt.service.conversation import Conversation


@dataclass(frozen=True, slots=True)
class Arena:
    """A connected device; `rate(time)` is the uplink's true bit/s, which controllers see."""

    side: Prefiller
    connectors: Mapping[str, Hosts]
    rate: Callable[[float], float] | None = None

    async def ask(self, question: Question, settings: Settings, **trained: Any) -> Given:
        """Return the answer; `trained` are fields of `Resources`, such as heads for the pair.

        Raises DragonError if this side cannot answer.
        """
        resources = self.resources(settings, **trained)
        return Given(
            await ClientSession(self.side, self.connectors, question, settings, resources).ask()
        )

    def resources(self, settings: Settings, **trained: Any) -> Resources:
        """Return what this side brings to an answer."""
        resources = Resources(
            vocabulary=self.side.vocabulary,
            timeouts=self.side.timeouts,
            members=dict.fromkeys(self.connectors, 1.0),
            profile=self.side.profile,
            rate=self.rate,
            **trained,
        )
        if settings.controller is not None:
            return replace(resources, controller=controller(settings.controller))
        return resources


@dataclass(frozen=True, slots=True)
class RealArena(Arena):
    """A device of a real process."""

    side: LocalSide

    def resources(self, settings: Settings, **trained: Any) -> Resources:
        """Return what this side brings to an answer."""
        marker = tuple(self.side.model.encode(MARKER))
        return Arena.resources(self, settings, marker=marker, **trained)

    async def ask_each(
        self, prompts: Sequence[str], question: Question, settings: Settings
    ) -> list[Given]:
        """Return the answers to prompts, each asked whole, without history, one after another."""
        question = replace(question, parts="off")
        answers = []
        for prompt in prompts:
            device = Device(self.side, self.connectors, settings, self.resources(settings))
            reply = await Conversation(device, question, question.seed, ()).ask(prompt)
            answers.append(Given(reply.answer))
        return answers


def emulated(link: LinkProfile, seed: int = 0) -> Callable[[Stream], Stream]:
    """Return what makes a device's streams as slow as the link."""
    return lambda stream: EmulatedStream(stream, *link.models("device", seed))
