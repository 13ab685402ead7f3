"""What benchmarks report: rows as tables, and one record of them, of which a page is made."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dragonrt.errors import DragonError
from scripts.bench import aggregation as ways
from scripts.bench import pages, results
from scripts.bench.__main__ import BENCHES
from scripts.bench.decode import decode
from scripts.bench.engine import engine
from scripts.bench.pages import differences, table_differences, tables
from scripts.bench.results import Run, demo_rows, made, runs
from scripts.bench.retrieval import retrieval
from scripts.bench.serving import serving, waits
from scripts.lab.harness import benchmark, measured, series
from tests.retrieval.conftest import WordHashes


@benchmark(
    {"model": "{model}", "ms": "{ms[median]:.1f} ms"},
    {"model": "{model}", "share": "{share:.0%}"},
    note="[x] Of a toy.",
)
def toy(*, model: str = "toy [red]é", seed: int = 4) -> Iterator[dict[str, Any]]:
    yield {"model": model, "ms": series([3.0, 1.0, 2.00004, 10.0])}
    yield {"model": model, "share": None}


def test_a_run_leaves_a_record_and_records_become_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    toy(seed=7)
    last = json.loads(capsys.readouterr().out.rstrip("\n").rsplit("\n", 1)[1])
    assert last == json.loads((tmp_path / "results/bench/toy.json").read_text())
    assert (last["benchmark"], last["seed"]) == ("toy", 7)
    assert last["machine"]["cores"] >= 1
    assert {"dragonrt", "python", "torch", "transformers"} <= set(last["versions"])
    assert [row["model"] for row in last["results"]] == ["toy [red]é"] * 2
    assert last["results"][0]["ms"]["samples"] == [3.0, 1.0, 2.0, 10.0]
    summary = {"fig": {"gain": {"mean": 2.0, "low": 1.5, "high": 2.5, "count": 9}}, "n": 3}
    made = last | {"run": "toy", "commit": "abc", "seconds": 3, "timed": False, "pictures": []}
    figure = made | {"run": "fig", "summary": summary, "tables": [], "pictures": ["fig-a"]}
    pages.keep([made, figure], tmp_path)
    pages.keep([figure], tmp_path)
    bench, drawn = (pages.page(name, tmp_path) for name in ("toy", "fig"))
    for line in ("# toy", "|model|ms|", "|toy [red]é|2.5 ms|", "|toy [red]é|-|"):
        assert line in bench.splitlines()
    for line in ("# fig", "|fig, gain|2 (1.5–2.5)|", "|n|3|"):
        assert line in drawn.splitlines()
    assert last["date"] in bench
    assert last["command"] in bench
    assert "figures/fig-a-dark.png" in drawn
    kept = pages.kept_tables("fig", tmp_path)
    assert kept == tables(figure)
    assert not list(differences(kept, tables(figure), timed=False))
    for low, count in ((2.6, 1), (2.4, 0)):
        gain = summary | {"fig": {"gain": {"mean": 9.0, "low": low, "high": 12.0, "count": 9}}}
        found = list(differences(kept, tables(figure | {"summary": gain}), timed=False))
        assert len(found) == count


def test_a_page_shows_a_part_of_a_table() -> None:
    rows = [[f"{kind}, at {at}", str(at), kind] for kind in ("a", "b") for at in (1, 2)]
    table = ["of", "ms", "kind"], rows
    across = {"match": r"^(?P<row>\w), at (?P<column>\d)$", "value": "ms", "of": "kind"}
    assert pages.view(table, across) == (["kind", "1", "2"], [["a", "1", "2"], ["b", "1", "2"]])
    some = {"where": {"kind": "^a$"}, "columns": ["ms"]}
    assert pages.view(table, some) == (["ms"], [["1"], ["2"]])
    first = {"match": r"^a, (?P<row>.+)$", "columns": ["ms"]}
    assert pages.view(table, first) == (["", "ms"], [["at 1", "1"], ["at 2", "2"]])


def test_a_page_has_few_rows_and_every_claim_a_number() -> None:
    for name, page in pages.pages().items():
        rows = [line for line in page.splitlines() if line.startswith("|")]
        assert len(rows) <= pages.ROWS + 8 or name == "index.md", name
    assert pages.layout()["claim"]


def changed(kept: str, made: str, *, timed: bool = False) -> bool:
    """Whether this cell of a row differs from the one on the page."""
    rows = [[("a", "b", cell)] for cell in (kept, made)]
    tables = [(("x", "y", "value"), row) for row in rows]
    return bool(list(table_differences(tables[0], tables[1], timed=timed)))


@pytest.mark.parametrize(
    ("kept", "made", "plain", "timed"),
    [
        ("8 of 8", "7 of 8", True, True),
        ("1 of 24", "2 of 24", True, False),
        ("4 of 24", "20 of 24", True, True),
        ("0.5 (0.4-0.6)", "0.7 (0.6-0.8)", False, False),
        ("0.5 (0.4-0.6)", "0.7 (0.61-0.8)", True, False),
        ("-1.5 (-2--1)", "1e-05 (-1e-06 to 1e-04)", True, True),
        ("1,200 (1,100 to 1,300)", "3,000 (2,700 to 3,100)", True, True),
        ("23.9 (24)", "47.7 (48)", False, False),
        ("23.9 (24)", "48.0 (48)", False, True),
        ("69/75", "80/10", False, False),
        ("-", "-", False, False),
        ("0.8 (0.7-0.9)", "-", True, True),
        ("0.8 (0.7-0.9)", "0.01", True, True),
        ("12.5", "-", False, True),
        ("-3", "-3", False, False),
    ],
)
def test_numbers_differ_beyond_their_intervals(
    kept: str, made: str, plain: bool, timed: bool
) -> None:
    assert changed(kept, made) == plain
    assert changed(kept, made, timed=True) == timed


def test_rows_are_told_apart_by_their_first_cells() -> None:
    rows: list[Sequence[str]] = [("a", "0", "1 of 2"), ("a", "1", "2 of 2")]
    table = ("name", "n", "equal"), rows
    assert not list(table_differences(table, (table[0], rows[::-1]), timed=False))
    assert len(list(table_differences(table, (table[0], rows[1:]), timed=False))) == 1


def test_the_readme_has_the_table_of_the_demonstration() -> None:
    rows = demo_rows((Path(__file__).parents[2] / "README.md").read_text("utf-8"))
    assert len(rows) == 4
    assert {len(row) for row in rows} == {7}


def test_a_run_is_made_once(tmp_path: Path) -> None:
    (run,) = (each for each in runs() if each.name == "pipeline")
    first = made(run, tmp_path)
    left = tmp_path / "pipeline/log.txt"
    left.unlink()
    assert made(run, tmp_path) == first
    assert not left.exists()
    made(replace(run, command=f"{run.command} --seed 2"), tmp_path)
    assert left.exists()
    assert str(tmp_path) not in (tmp_path / "pipeline/pipeline.json").read_text("utf-8")


def test_pictures_are_kept_for_light_and_dark_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "DOCS", tmp_path)
    drawn = Image.new("RGB", (1600, 800), "white")
    drawn.paste((0, 114, 178), (0, 0, 1600, 400))
    place = tmp_path / "all/run/results/fig"
    place.mkdir(parents=True)
    drawn.save(place / "fig.png")
    results.keep_pictures([{"run": "run", "pictures": ["fig"]}], tmp_path / "all")
    light, dark = (
        np.asarray(Image.open(tmp_path / "figures" / f"fig{suffix}.png").convert("RGB"), float)
        for suffix in ("", "-dark")
    )
    assert light.shape == dark.shape == (500, 1000, 3)
    assert light[-1].min() > 250
    assert dark[-1].max() < 20
    assert (light[0].argmin(-1) == dark[0].argmin(-1)).all()
    assert (dark[0].mean(-1) > light[0].mean(-1)).all()


def test_a_run_that_fails_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DragonError, match="log"):
        made(Run(name="no", command="dragonrt nothing", minutes=1), tmp_path)


@pytest.mark.parametrize("own", [{"latency": "20ms"}, {"engine": "vllm"}, {"devices": 2}])
def test_a_cloud_that_runs_already_has_its_engine_and_link(own: dict[str, Any]) -> None:
    with pytest.raises(DragonError, match="--at"):
        serving(at="127.0.0.1:7070", **own)


def test_runs_have_names_of_their_own() -> None:
    names = [run.name for run in runs()]
    assert len(set(names)) == len(names)
    assert sum(run.minutes / (2 - run.timed) for run in runs() if run.quick) <= 8


@pytest.mark.parametrize("name", BENCHES)
def test_every_benchmark_is_where_the_command_looks_for_it(name: str) -> None:
    module = __import__(f"scripts.bench.{name}", fromlist=[name])
    assert callable(getattr(module, name))


@pytest.mark.slow
def test_decoding_is_measured_against_the_same_tokens() -> None:
    draft = ("dragon-draft",)
    found = measured(decode, model=draft[0], threads=(1,), repeats=2, reference=True)
    assert [row["forward"] for row in found[-3:]] == ["8 x 1", "1 x 4", "1 x 100"]
    for row in found:
        assert row["said"]["dragonrt"] == row["said"]["bare loop"] == row["said"]["transformers"]
    (row,) = measured(engine, model=draft, sessions=(3,), tokens=48, repeats=1)
    assert row["same_texts"] is True
    assert row["shared"]["forwards_per_token"] < 0.46 < row["single"]["forwards_per_token"]
    assert 0 < row["shared"]["p50_ms"] <= row["shared"]["p95_ms"]


@pytest.mark.slow
def test_ways_and_parts_of_first_tokens_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "ONE_WAY_MS", (0, 20))
    monkeypatch.setattr(ways, "TOKENS", 3)
    found = measured(ways.aggregation, model="dragon-draft", documents=4, questions=2)
    pairs = [(row["way"], row["latency_ms"]) for row in found if "way" in row]
    over = [(name, each) for each in (0, 20) for name in ("synchronous", "coupled, leaderless")]
    assert pairs == [*over, ("one process", 0)]
    assert [row["read"] for row in found[: -len(pairs)]] == ["no", "no", "yes", "yes"]
    for row in found[: -len(pairs)]:
        parts = [row[part]["median"] for part in ways.PARTS]
        assert sum(parts) == pytest.approx(row["first"]["median"], rel=1e-3)
        assert row["question"]["median"] > 0


@pytest.mark.slow
def test_what_is_found_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.bench.retrieval.load_embedder", WordHashes().embedder)
    recalled = measured(retrieval, count=450, questions=10, follow_ups=5)
    kinds = [row["questions"] for row in recalled]
    of_each = ("names and numbers", "other words", "paraphrase", "reference number")
    assert kinds[:12] == [kind for kind in of_each for _ in range(3)]
    assert all(row["ms"]["median"] > 0 for row in recalled if "ms" in row)


def test_goodput_counts_the_answers_that_are_fast_in_both() -> None:
    in_time, late, slow = [0.3, 0.35, 0.45], [0.7, 0.75], [0.3, 0.4, 0.8]
    found = waits([in_time, late, slow, in_time], 4.0)
    assert (found["answers"], found["in_time"], found["goodput"]) == (4, 2, 0.5)
    assert found["first_ms"][0] == pytest.approx(300)
    assert found["next_ms"][0] == pytest.approx(100)
    assert found["ms_per_token"]["median"] == pytest.approx(75)


def test_a_named_run_without_its_texts_is_an_error(tmp_path: Path) -> None:
    run = next(each for each in runs() if each.data)
    with pytest.raises(DragonError, match=run.name):
        results.results(run.name, data=tmp_path, results=tmp_path)
    assert not [*tmp_path.iterdir()]
