"""A model's decode profile on this machine, saved: seconds per token by length of the context."""

import json
import platform
import re
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import platformdirs
from msgspec import MsgspecError
from msgspec.json import decode

from dragonrt.backends.model import LanguageModel
from dragonrt.control.scheduler import DecodeProfile
from dragonrt.errors import DragonError

DOCUMENT_TOKENS = 96  # as many as a usual chunk has


def measure(
    model: LanguageModel,
    *,
    rows: int = 2,
    runs: int = 3,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> DecodeProfile:
    """Time one-token forwards at every length of the context; fit a DecodeProfile to the seconds.

    Each run extends `rows` documents' KV up to the full context. `progress` gets (runs done, all).
    """
    document = model.document_kv([2 + i % 200 for i in range(DOCUMENT_TOKENS)])
    room = model.context_length - DOCUMENT_TOKENS
    lengths: list[int] = []
    delays_s: list[float] = []
    for run in range(runs):
        sequence = model.rows([document] * rows, capacity=room)
        for step in range(room):
            start_s = time.perf_counter()
            sequence.extend([2 + step % 200])
            delays_s.append(time.perf_counter() - start_s)
            lengths.append(DOCUMENT_TOKENS + step + 1)
        progress(run + 1, runs)
    return DecodeProfile.fit(lengths, delays_s)


def _profile_path(model: str) -> Path:
    safe = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{platform.node()}-{model}").strip("-")
    return Path(platformdirs.user_data_dir("dragonrt")) / "hosts" / f"{safe}.json"


def save_profile(model: str, profile: DecodeProfile) -> Path:
    """Save a decode profile for the model name `model` on this machine; return the file's path."""
    path, about = _profile_path(model), {"model": model, "machine": platform.machine()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**asdict(profile), **about}, indent=2) + "\n", encoding="utf-8")
    return path


def load_profile(model: str) -> DecodeProfile | None:
    """Return the decode profile saved on this machine for the model name `model`, or None."""
    path = _profile_path(model)
    if not path.exists():
        return None
    try:
        return decode(path.read_bytes(), type=DecodeProfile)
    except (OSError, MsgspecError) as error:
        raise DragonError(
            f"the decode profile {path} is broken ({error}): delete it or run `dragonrt profile`"
        ) from None
