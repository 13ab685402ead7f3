"""Durations, bit rates and sizes as people write them: `150ms`, `1mbit`, `20GB`."""

import re

from dragonrt.errors import DragonError, LinkError

_DURATIONS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_BANDWIDTHS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def parse_duration(text: str) -> float:
    """Return seconds, of a number with one of the units us, ms, s, min."""
    return _parse(text, _DURATIONS, "a duration", "150ms or 1.5s")


def parse_bandwidth(text: str) -> float:
    """Return bits per second (above 0), of a number with one of the units bit, kbit, mbit, gbit."""
    bandwidth = _parse(text, _BANDWIDTHS, "a bandwidth", "250kbit or 10mbit")
    if bandwidth == 0:
        raise LinkError(f"a bandwidth must be above 0, not {text!r}")
    return bandwidth


def parse_size(text: str) -> int:
    """Return bytes, of a number with or without k, M, G or T, and B. Raises DragonError."""
    found = re.fullmatch(r"([\d.]+(?:e\d+)?)\s*([kmgt]?)b?", text.strip().lower())
    try:
        return int(float(found[1]) * 1000 ** " kmgt".index(found[2] or " ")) if found else int(text)
    except (ValueError, OverflowError):
        raise DragonError(f"{text!r} is no size: write it as 500MB or 20GB") from None


def _parse(text: str, units: dict[str, float], kind: str, example: str) -> float:
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?) ?([a-z]+)", text.strip().lower())
    if match is None or match[2] not in units:
        names = ", ".join(units)
        raise LinkError(
            f"{text!r} is not {kind}: write a number and one of {names}, such as {example}"
        )
    return float(match[1]) * units[match[2]]
