"""Experiments: rows to files and back, settings, clocks, and the command that runs them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonrt.errors import DragonError
from scripts.lab.intervals import Row, estimate, table
from scripts.papers import figures
from scripts.papers.framework import (
    Clock,
    ExperimentError,
    Files,
    Progress,
    Settings,
    draw_again,
    files,
    measure_all,
    read_rows,
    run_experiment,
    write_rows,
)


class Doubling:
    """A figure that measures nothing."""

    NAME = "doubling"
    SUMMARY = "Doubles numbers"
    CLOCKS: tuple[Clock, ...] = ("virtual",)

    def run(self, settings: Settings, progress: Progress) -> list[Row]:
        def measure(n: int) -> list[Row]:
            kind, added = ("answers", "prose")[n % 2], len(settings.model) - 1
            return [{"kind": kind, "n": n, "twice": 2.0 * n + added}]

        return measure_all(measure, range(settings.repeats), progress)

    def plot(self, rows: list[Row], path: Path) -> None:
        path.write_text(repr(rows))

    def summarise(self, rows: list[Row]) -> dict[str, Any]:
        return {"sum": sum(row["twice"] for row in rows)}


@pytest.fixture
def where(tmp_path: Path) -> Files:
    return files(Doubling(), tmp_path / "results")


def measured(where: Files, repeats: int, *models: str) -> list[tuple[int, int]]:
    """Run the figure of these models, or of one called m; return its progress."""
    seen: list[tuple[int, int]] = []
    settings = Settings(True, False, repeats, 7, where.directory, models or ("m",))
    progress: Progress = lambda *now: seen.append(now)  # noqa: E731
    assert run_experiment(Doubling(), settings, progress, by_model=bool(models)) == where
    return seen


def record_of(where: Files) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(where.record.read_text())
    return found


@pytest.mark.slow
def test_a_run_leaves_rows_a_record_and_a_picture(where: Files) -> None:
    assert measured(where, 1) == [(1, 1)]
    assert where.rows.read_text() == "kind,n,twice\nanswers,0,0.0\n"
    record = record_of(where)
    assert record["summary"] == {"sum": 0.0}
    assert {"machine", "versions", "command", "seconds"} <= set(record)
    assert (record["seed"], record["repeats"], record["quick"]) == (7, 1, True)
    assert (record["clock"], record["rows"]) == ("virtual", 1)
    assert where.pictured().exists()


def test_answers_and_prose_are_summed_and_drawn_apart(where: Files) -> None:
    assert measured(where, 4) == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert record_of(where)["summary"] == {"answers": {"sum": 4.0}, "prose": {"sum": 8.0}}
    assert where.pictures == [where.pictured("answers"), where.pictured("prose")]
    assert "prose" not in where.pictured("answers").read_text()


def test_each_model_has_its_rows_its_summary_and_its_picture(where: Files) -> None:
    where.pictured("of before").touch()
    assert measured(where, 1, "m", "hub/larger one") == [(1, 2), (2, 2)]
    assert [(row["model"], row["twice"]) for row in read_rows(where.rows)] == [
        ("m", 0.0),
        ("hub/larger one", 13.0),
    ]
    assert record_of(where)["summary"] == {"m": {"sum": 0.0}, "hub/larger one": {"sum": 13.0}}
    assert [path.name for path in where.pictures] == [
        "doubling-hub-larger-one.png",
        "doubling-m.png",
    ]
    measured(where, 1, "m")
    assert [path.name for path in where.pictures] == ["doubling.png"]


def test_the_csv_is_enough_to_draw_again(where: Files) -> None:
    measured(where, 1)
    drawn = where.pictured().read_text()
    where.pictured().unlink()
    where.rows.write_text("n,twice\n0,0.0\n1,5.5\n")
    draw_again(Doubling(), where)
    assert where.pictured().read_text() != drawn
    assert (record_of(where)["summary"], record_of(where)["repeats"]) == ({"sum": 5.5}, 1)


@pytest.mark.parametrize("text", [None, "", "n,twice\n", "n,twice\n1\n", "n\n\xff\n"])
def test_what_is_no_csv_of_rows_is_one_line(where: Files, text: str | None) -> None:
    if text is not None:
        where.rows.write_bytes(text.encode("latin-1"))
    with pytest.raises(ExperimentError, match=r"doubling\.csv"):
        draw_again(Doubling(), where)


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(min_size=1)
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(rows=st.lists(st.fixed_dictionaries({"a": SCALARS, "b": SCALARS}), min_size=1, max_size=5))
def test_rows_come_back_as_they_were(
    rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    write_rows(rows, path)
    again = read_rows(path)
    assert again == rows
    assert [(type(row["a"]), type(row["b"])) for row in again] == [
        (type(row["a"]), type(row["b"])) for row in rows
    ]


def test_the_catalogue_knows_every_figure_by_one_name() -> None:
    assert len({each.NAME for each in figures.EXPERIMENTS}) == len(figures.MODULES)
    for each in figures.EXPERIMENTS:
        assert figures.experiment(each.NAME) is each
        assert set(each.CLOCKS) <= {"virtual", "real"}
        assert len(each.SUMMARY) <= 90


def test_the_estimate_is_the_median_within_its_interval() -> None:
    samples = [1.0, 2.0, 3.0, 4.0, 100.0]
    found = estimate(samples)
    assert found.value == 3.0
    assert 1.0 <= found.low < 3.0 < found.high <= 100.0
    assert found == estimate(samples)
    assert found.to_json()["median"] == 3.0
    assert estimate(samples, "mean").to_json()["mean"] == 22.0
    alone = estimate([5.0])
    assert (alone.low, alone.value, alone.high, alone.count) == (5.0, 5.0, 5.0, 1)
    with pytest.raises(DragonError):
        estimate([])


def test_a_table_has_the_estimates_of_every_group() -> None:
    rows: list[Row] = [{"way": way, "ms": ms, "n": ms / 10} for way in "ab" for ms in (10, 20)]
    rows.append({"way": "b", "ms": 20, "n": None})
    found = table(rows, "way", "ms", mean=["n"])
    assert list(found) == ["a", "b"]
    assert found["a"]["ms 20"]["n"] == {"mean": 2.0, "low": 2.0, "high": 2.0, "count": 1}
    assert found["b"]["ms 20"]["n"]["count"] == 1, "an empty cell does not count"
