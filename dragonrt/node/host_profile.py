"""A host's offline decode profile: measured once, kept in the user's data (DRAGON §5.2)."""

import json
import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from dragonrt.backends.model import LanguageModel
from dragonrt.control.profiler import DecodeProfile
from dragonrt.errors import DragonError

DOCUMENT_TOKENS = 96


@dataclass(frozen=True, slots=True)
class Measurement:
    """Offline samples of one model on one machine: context lengths and seconds per token."""

    model: str
    rows: int
    runs: int
    lengths: tuple[int, ...]
    delays_s: tuple[float, ...]

    @property
    def profile(self) -> DecodeProfile:
        return DecodeProfile.fit(self.lengths, self.delays_s)


def measure(
    model: LanguageModel,
    *,
    rows: int = 2,
    runs: int = 3,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Measurement:
    """Decode dummy documents of the real chunk size until the context is full, several times."""
    document = model.document_kv([2 + i % 200 for i in range(DOCUMENT_TOKENS)])
    room = model.context_length - DOCUMENT_TOKENS
    lengths: list[int] = []
    delays_s: list[float] = []
    for run in range(runs):
        sequence = model.sequence([document] * rows, capacity=room)
        for step in range(room):
            start_s = time.perf_counter()
            sequence.extend([2 + step % 200])
            delays_s.append(time.perf_counter() - start_s)
            lengths.append(DOCUMENT_TOKENS + step + 1)
        progress(run + 1, runs)
    return Measurement(model.name, rows, runs, tuple(lengths), tuple(delays_s))


def profile_path(model: str) -> Path:
    """Where the profile of a model on this machine is kept."""
    safe = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{platform.node()}-{model}").strip("-")
    return Path(platformdirs.user_data_dir("dragonrt")) / "hosts" / f"{safe}.json"


def save_profile(measurement: Measurement, path: Path) -> None:
    """Write the fitted profile with what it was measured on."""
    profile = measurement.profile
    about = {
        "model": measurement.model,
        "machine": platform.machine(),
        "rows": measurement.rows,
        "runs": measurement.runs,
        "samples": len(measurement.lengths),
        "ms_at_128": round(1000 * profile.predict(128), 4),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**profile.to_json(), **about}, indent=2) + "\n", encoding="utf-8")


def load_profile(model: str) -> DecodeProfile | None:
    """The saved profile of a model on this machine, if there is one."""
    path = profile_path(model)
    if not path.exists():
        return None
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        return DecodeProfile(float(saved["k_a"]), float(saved["k_b"]), float(saved["k_c"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DragonError(
            f"the decode profile {path} is broken ({error}): delete it or run `dragonrt profile`"
        ) from None
