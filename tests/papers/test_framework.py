"""Experiments: rows to files and back, settings, clocks, and the command that runs them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonrt.errors import DragonError
from scripts.papers import figures
from scripts.papers.charts import errors, lines, looks, picture
from scripts.papers.framework import (
    Clock,
    ExperimentError,
    Files,
    Progress,
    Settings,
    draw_again,
    files,
    read_rows,
    run_experiment,
    write_rows,
)
from scripts.papers.intervals import Interval, Row, estimate


class Doubling:
    """An experiment that measures nothing."""

    NAME = "doubling"
    SUMMARY = "Doubles numbers"
    CLOCKS: tuple[Clock, ...] = ("virtual",)

    def run(self, settings: Settings, progress: Progress) -> list[Row]:
        for done in range(settings.repeats):
            progress(done + 1, settings.repeats)
        return [{"n": n, "twice": 2.0 * n} for n in range(settings.repeats)]

    def plot(self, rows: list[Row], path: Path) -> None:
        path.write_text(repr(rows))

    def summarise(self, rows: list[Row]) -> dict[str, Any]:
        return {"sum": sum(row["twice"] for row in rows)}


class OfKinds(Doubling):
    """The same, of two kinds of text."""

    def run(self, settings: Settings, progress: Progress) -> list[Row]:
        rows = super().run(settings, progress)
        return [{"kind": ("answers", "prose")[row["n"] % 2]} | row for row in rows]


@pytest.fixture
def where(tmp_path: Path) -> Files:
    return files(Doubling(), tmp_path / "results")


@pytest.mark.slow
def test_a_run_leaves_rows_a_record_and_a_picture(where: Files) -> None:
    seen: list[tuple[int, int]] = []
    settings = Settings(True, False, 3, 7, where.directory)
    written = run_experiment(Doubling(), settings, lambda *now: seen.append(now))
    assert written == where
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert where.rows.read_text() == "n,twice\n0,0.0\n1,2.0\n2,4.0\n"
    record = json.loads(where.record.read_text())
    assert record["summary"] == {"sum": 6.0}
    assert {"machine", "versions", "command", "seconds"} <= set(record)
    assert (record["seed"], record["repeats"], record["quick"]) == (7, 3, True)
    assert (record["clock"], record["rows"]) == ("virtual", 3)
    assert where.pictured(None).exists()


def test_answers_and_prose_are_told_and_drawn_apart(where: Files) -> None:
    settings = Settings(True, False, 4, 0, where.directory)
    run_experiment(OfKinds(), settings, lambda *now: None)
    record = json.loads(where.record.read_text())
    assert record["summary"] == {"answers": {"sum": 4.0}, "prose": {"sum": 8.0}}
    assert where.pictures == [where.pictured("answers"), where.pictured("prose")]
    assert "prose" not in where.pictured("answers").read_text()


class OfModels(OfKinds):
    """The same, of the settings' model."""

    def run(self, settings: Settings, progress: Progress) -> list[Row]:
        rows = super().run(settings, progress)
        return [row | {"twice": row["twice"] + len(settings.model)} for row in rows]


def test_each_model_has_its_rows_its_summary_and_its_picture(where: Files) -> None:
    seen: list[tuple[int, int]] = []
    where.pictured("of before").touch()
    settings = Settings(True, False, 1, 0, where.directory)
    models = ("m", "hub/larger one")
    run_experiment(OfModels(), settings, lambda *now: seen.append(now), models)
    assert seen == [(1, 2), (2, 2)]
    assert [(row["model"], row["twice"]) for row in read_rows(where.rows)] == [
        ("m", 1.0),
        ("hub/larger one", 14.0),
    ]
    record = json.loads(where.record.read_text())
    assert record["summary"] == {"m": {"sum": 1.0}, "hub/larger one": {"sum": 14.0}}
    assert [path.name for path in where.pictures] == [
        "doubling-hub-larger-one.png",
        "doubling-m.png",
    ]
    run_experiment(OfModels(), settings, lambda *now: None, models[:1])
    assert [path.name for path in where.pictures] == ["doubling.png"]


def test_the_csv_is_enough_to_draw_again(where: Files) -> None:
    settings = Settings(True, False, 2, 0, where.directory)
    run_experiment(Doubling(), settings, lambda *now: None)
    drawn = where.pictured(None).read_text()
    where.pictured(None).unlink()
    where.rows.write_text("n,twice\n0,0.0\n1,5.5\n")
    draw_again(Doubling(), where)
    assert where.pictured(None).read_text() != drawn
    record = json.loads(where.record.read_text())
    assert (record["summary"], record["repeats"]) == ({"sum": 5.5}, 2)


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


def test_the_catalogue_knows_every_experiment_by_one_name() -> None:
    names = [each.NAME for each in figures.EXPERIMENTS]
    assert len(set(names)) == len(names)
    for each in figures.EXPERIMENTS:
        assert figures.experiment(each.NAME) is each
        assert each.CLOCKS
        assert "\n" not in each.SUMMARY
        assert len(each.SUMMARY) <= 90
    with pytest.raises(DragonError, match="there is no experiment 'nothing'; there are "):
        figures.experiment("nothing")


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
    with pytest.raises(DragonError, match="nothing was measured"):
        estimate([])


def test_lines_stand_apart_with_their_intervals_and_without_those_that_are_missing(
    tmp_path: Path,
) -> None:
    found = {("a", 2.0): Interval("mean", 5.0, 4.0, 7.0, 3), ("b", 1.0): estimate([2.0])}
    assert errors(found.values()) == ([1.0, 0.0], [2.0, 0.0])
    with picture(tmp_path / "lines.png", legend=1) as (_, axes):
        axis = axes[0, 0]
        lines(axis, found, looks(("a", "none", "b")), apart=0.1)
        first, last = axis.containers
        assert list(first.lines[0].get_xdata()) == [1.9]
        assert [tuple(point) for point in first.lines[2][0].get_segments()[0]] == [
            (1.9, 4.0),
            (1.9, 7.0),
        ]
        assert (list(last.lines[0].get_xdata()), last.lines[2]) == ([1.1], ())
