"""The first-token experiment: ratios to DRAGON, and a picture from the rows alone."""

from pathlib import Path

from scripts.papers.dragon import first_token
from scripts.papers.intervals import Row

ROWS: list[Row] = [
    {
        "model": "m",
        "method": name,
        "round_trip_ms": ms,
        "documents": 2,
        "question": 0,
        "repeat": repeat,
        "first_ms": (40.0 + ms) * (3 if name == "DRCG/KV" else 1) * (2 if ms == 0 else 1),
        "wire_bytes": 100,
    }
    for name in first_token.METHODS
    for ms in (0, 300)
    for repeat in range(3)
]


def test_every_method_is_compared_with_dragon_and_drawn(tmp_path: Path) -> None:
    summary = first_token.summarise(ROWS)["2 documents a side"]
    assert summary["DRCG/KV"]["times DRAGON's"] == {"0 ms": 3.0, "300 ms": 3.0, "mean": 3.0}
    assert summary["DRAGON"]["times DRAGON's"]["mean"] == 1.0
    assert summary["DRAGON"]["ms"]["0 ms"]["median"] == 80.0
    first_token.plot(ROWS, tmp_path / "first_token.png")
    assert (tmp_path / "first_token.png").stat().st_size > 10_000
