"""dragonrt: two peers, each with its own documents, answer one question together."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

PUBLIC = {
    **dict.fromkeys(("Device", "connect", "serve_cloud"), "dragonrt.api"),
    **dict.fromkeys(("Answer", "Piece", "Source"), "dragonrt.service.answer"),
    **dict.fromkeys(("Chat", "Stream"), "dragonrt.service.chat"),
    "DragonError": "dragonrt.errors",
}
"""The module of each public name: none is imported before it is used (docs/api.md)."""


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *PUBLIC])
