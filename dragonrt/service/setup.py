"""Build a device's or a cloud's settings from values by name, before heavy imports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Self

from dragonrt.errors import DragonError
from dragonrt.modes import MODES, question_and_settings
from dragonrt.modes.question import Question
from dragonrt.modes.settings import ModeEntry, Settings
from dragonrt.node.connections.addresses import (
    Address,
    LinkSettings,
    Member,
    NetworkSettings,
    members,
)
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.settings import assemble_known

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeviceSetup:
    """All settings of a device: `side` for itself, `how` for its mode, `others` for its clouds.

    `question` has the settings of all answers; if `seed` is None each answer draws its own.
    `warnings` are lines to print for the user.
    """

    question: Question
    how: Settings
    others: Sequence[Member]
    side: SideSettings
    seed: int | None
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, mode: str, own: Values, answers: Values, workers: Sequence[str] = ()) -> Self:
        """Build the setup of a device in mode `mode` from values by the field names of settings.

        `own` has fields of SideSettings, NetworkSettings and LinkSettings, `answers` of Question
        and the mode's settings; `workers` are HOST:PORT[=WEIGHT in mixture]. Raises DragonError.
        """
        entry = entry_named(mode)
        question, how = question_and_settings(mode, answers)
        reached = assemble_known(NetworkSettings, own)
        others = members(how, reached, assemble_known(LinkSettings, own), workers)
        side = assemble_known(SideSettings, {"model": entry.model, **own, "side": "device"})
        side = side.with_peers_at(other.address.host for other in others)
        unread = entry.unread if side.has_documents else None
        entry.check(how, side.model)
        lines = (*_expiring(reached, others), *([f"--mode {mode}: {unread}"] if unread else []))
        return cls(question, how, others, side, answers.get("seed"), lines)


@dataclass(frozen=True, slots=True)
class CloudSetup:
    """All settings of a cloud: its side, and where it listens; `warnings` are lines for users."""

    side: SideSettings
    address: Address
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, own: Values) -> Self:
        """Build it from `own`: values by field of SideSettings, NetworkSettings, LinkSettings."""
        reached = assemble_known(NetworkSettings, own)
        address = reached.cloud_address(assemble_known(LinkSettings, own))
        address.check_listening()  # before minutes of loading
        side = assemble_known(SideSettings, {**own, "side": "cloud"}).with_peers_at([address.host])
        return cls(side, address, tuple(_expiring(reached)))


def entry_named(mode: str) -> ModeEntry[Any, Any]:
    """Return a mode's ModeEntry, which makes all its objects. Raises DragonError if unknown."""
    if mode not in MODES:
        raise DragonError(f"unknown mode {mode!r}: choose one of {', '.join(MODES)}")
    return MODES[mode]


def _expiring(network: NetworkSettings, others: Sequence[Member] = ()) -> list[str]:
    exposed = [each.address.host for each in others if each.address.exposed]
    warning = "--insecure: anyone on the way to {} reads and changes what is sent"
    return [*network.expiring(date.today()), *map(warning.format, exposed)]
