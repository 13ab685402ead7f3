"""The benchmark of a large index, at a size that is none."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from scripts.bench.index import IndexSize, bench_index


@pytest.mark.slow
def test_every_time_of_an_index_is_reported(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as file:
        bench_index(
            output=Console(file=file, width=200),
            messages=Console(stderr=True),
            size=IndexSize(chunks=80, articles=3, tokens=4),
        )
    results = json.loads((tmp_path / "out").read_text().splitlines()[-1])["results"]
    *times, memory = results
    assert [row["what"] for row in times] == [
        "start, to the first hits",
        "search, hybrid",
        "search, dense",
        "search, words",
        "one changed file",
        "processor time of it",
        "a token alone",
        "a token beside 3 files being indexed",
    ]
    assert all(0 < row["median_ms"] <= row["p95_ms"] for row in times if row["times"])
    assert memory["chunks"] == 80
