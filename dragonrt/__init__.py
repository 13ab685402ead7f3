"""dragonrt: two peers, each with its own documents, answer one question together."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragonrt.api import Answer as Answer
    from dragonrt.api import Chat as Chat
    from dragonrt.api import Device as Device
    from dragonrt.api import Piece as Piece
    from dragonrt.api import Source as Source
    from dragonrt.api import Stream as Stream
    from dragonrt.api import connect as connect
    from dragonrt.api import serve_cloud as serve_cloud
    from dragonrt.errors import DragonError as DragonError
    from dragonrt.modes.registry import ModeEntry as ModeEntry
    from dragonrt.modes.registry import register as register

__version__ = "0.1.0"

PUBLIC = {
    **dict.fromkeys(
        ("Answer", "Chat", "Device", "Piece", "Source", "Stream", "connect", "serve_cloud"),
        "dragonrt.api",
    ),
    "DragonError": "dragonrt.errors",
    **dict.fromkeys(("ModeEntry", "register"), "dragonrt.modes.registry"),
}
"""The module of each public name: none is imported before it is used."""


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *PUBLIC])
