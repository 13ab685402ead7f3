"""The measurement of branches: they save time, and no token depends on them."""

from pathlib import Path

import pytest

from dragonrt.modes.disclosure import Disclosure
from scripts.papers.dragon import branch_latency
from scripts.papers.dragon.branch_latency import BranchCase


def test_branches_save_waiting_and_change_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branch_latency, "TOKENS", 40)
    rows = [
        branch_latency.measure(BranchCase(0.6, Disclosure.DRAFTS, rtt_ms, branches, seed))
        for rtt_ms in (0, 300)
        for branches in ("0", "4")
        for seed in (1, 2)
    ]
    assert len({(row["seed"], row["text"]) for row in rows}) == 2
    ((level, found),) = branch_latency.summarise(rows).items()
    assert level.startswith("level drafts, 0.")
    assert found["RTT 0 ms"]["0"]["times_without_latency"] == 1
    far = found["RTT 300 ms"]
    assert far["4"]["times_without_latency"] < far["0"]["times_without_latency"]
    branch_latency.plot(rows, tmp_path / "branches.png")
    assert (tmp_path / "branches.png").read_bytes().startswith(b"\x89PNG")
