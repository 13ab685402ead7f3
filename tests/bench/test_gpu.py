"""The benchmark of a GPU, on the CPU with a tiny model."""

import json
from pathlib import Path

import pytest

from dragonrt.errors import DragonError
from scripts.bench import results
from scripts.bench.gpu import bounded, model_rows, pair_rows


@pytest.mark.parametrize(
    ("command", "rows", "result"),
    [
        ("echo '{\"n\": 1}'", [{"n": 1}], "measured"),
        ("echo '{\"n\": 2}'; echo why >&2; exit 1", [{"n": 2}], "failed: why"),
        ("kill -KILL $$", [], "failed: "),
    ],
)
def test_a_step_that_breaks_is_a_row(command: str, rows: list[object], result: str) -> None:
    *printed, about = bounded("a", 60, "sh", "-c", command)
    assert printed == rows
    assert (about["step"], about["result"]) == ("a", result)


@pytest.mark.slow
def test_a_random_model_keeps_the_contract_and_is_timed() -> None:
    rows = list(model_rows("tiny", "cpu"))
    held = [(row["numbers"], row["contract"]) for row in rows if "contract" in row]
    assert held == [("bfloat16", "7 of 7"), ("float32", "7 of 7")]
    forwards = [row["forward"] for row in rows if "forward" in row]
    assert (forwards[0], forwards[6], forwards[-1]) == ("1 x 1", "64 x 1", "1 x 64")
    assert sum(row["same"] == "yes" for row in rows if "same" in row) > len(forwards) / 2


@pytest.mark.slow
def test_a_pair_gives_the_synchronous_text() -> None:
    rows = list(pair_rows("cpu"))
    assert [row["method"] for row in rows] == ["synchronous", "coupled, leaderless"]
    assert all(row["equal"] == row["answers"] == 2 for row in rows)


def test_a_record_from_another_machine_is_read(tmp_path: Path) -> None:
    record = tmp_path / "gpu.json"
    shown = {"headings": ["step", "result"], "rows": [["8 B", "measured"]]}
    record.write_text(json.dumps({"benchmark": "gpu", "tables": [shown], "results": []}))
    results.results(by_hand=record)
    record.write_text("{}")
    with pytest.raises(DragonError):
        results.results(by_hand=record)
