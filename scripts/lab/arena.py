"""The one way to get an answer in figures and benchmarks.

An arena is a device that is connected to the other sides of its answers: a cloud, or several
workers; in virtual time (`virtual_arena`), or in real processes (`sample_sides.LoadedSide`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.modes.entry import Resources
from dragonrt.modes.question import Question
from dragonrt.modes.registry import entry_of
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeResources
from dragonrt.node.answers.client_session import ClientSession
from dragonrt.node.answers.model_session import Prefiller
from dragonrt.node.connections.connector import Connector
from dragonrt.node.process.local_side import LocalSide
from dragonrt.node.process.programs import Device, counterpart
from dragonrt.service.chat import Chat
from dragonrt.service.comparison import Given as Given


@dataclass(frozen=True, slots=True)
class Arena:
    """A connected device; `rate(time)` is the uplink's true bit/s, which controllers see."""

    side: Prefiller
    connectors: Mapping[str, Connector]
    rate: Callable[[float], float] | None = None

    async def ask(self, question: Question, settings: Settings, **trained: Any) -> Given:
        """Return the answer; `trained` are fields of the resources, such as heads for the pair.

        Raises DragonError if this side cannot answer.
        """
        resources = self.resources(settings, **trained)
        return Given(
            await ClientSession(self.side, self.connectors, question, settings, resources).ask()
        )

    def resources(self, settings: Settings, **trained: Any) -> Resources:
        """Return what this side brings to an answer."""
        others = {name: counterpart(1.0, hosts) for name, hosts in self.connectors.items()}
        resources: Resources = entry_of(settings).prepare(self.side, others, settings)
        rate: Any = {"rate": self.rate} if isinstance(resources, SpeculativeResources) else {}
        return replace(resources, **rate, **trained)


@dataclass(frozen=True, slots=True)
class RealArena(Arena):
    """A device of a real process."""

    side: LocalSide

    async def ask_each(
        self, prompts: Sequence[str], question: Question, settings: Settings
    ) -> list[Given]:
        """Return the answers to prompts, each asked whole, without history, one after another."""
        question = replace(question, parts="off")
        answers = []
        for prompt in prompts:
            device = Device(self.side, self.connectors, settings, self.resources(settings))
            reply = await Chat(device, question, question.seed, ()).ask(prompt)
            answers.append(Given(reply.decoded))
        return answers


def emulated(link: LinkProfile, seed: int = 0) -> Callable[[Stream], Stream]:
    """Return what makes a device's streams as slow as the link."""
    return lambda stream: EmulatedStream(stream, *link.models("device", seed))
