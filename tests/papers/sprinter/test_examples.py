"""`sprinter-examples`: what became of a token, and the picture of texts."""

from pathlib import Path

import pytest

from dragonrt.traces.events import Cause, TokenDecided
from scripts.papers.framework import Settings
from scripts.papers.intervals import Row, grouped
from scripts.papers.sprinter import examples as sprinter_examples
from scripts.papers.sprinter.examples import (
    COLUMNS,
    CONFIRMED,
    MARGIN,
    OWN,
    PASSED,
    REPLACED,
    TARGET_ALONE,
    origin,
    plot,
    run,
    summarise,
)


@pytest.mark.parametrize(
    ("stands", "cause", "expected"),
    [
        (True, "own", PASSED),
        (True, "target", CONFIRMED),
        (False, "target", REPLACED),
        (None, "target", OWN),
    ],
)
def test_the_origin_of_a_token(stands: bool | None, cause: Cause, expected: str) -> None:
    assert origin(TokenDecided(0, 7, stands, None, cause, 0.0, 1.0)) == expected


@pytest.mark.slow
def test_only_a_sprinter_shows_what_the_target_has_not_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sprinter_examples, "TOKENS", 8)
    settings = Settings(quick=True, real=False, repeats=1, seed=0, results=tmp_path)
    texts = grouped(run(settings, lambda done, total: None), "kind", "method")
    assert len(texts) == 2 * 3
    for (kind, method), rows in texts.items():
        origins = {row["origin"] for row in rows}
        assert [row["step"] for row in rows] == list(range(len(rows)))
        assert len(rows) == 8 or kind == "answers"
        assert (PASSED in origins) == (method == "SPRINTER")
        assert method != TARGET_ALONE or origins == {OWN}
        if kind == "answers":
            assert rows[0]["prefix"].endswith("Answer:")


def test_texts_are_told_and_drawn(tmp_path: Path) -> None:
    tokens = ((" The", PASSED), (" s$ea", REPLACED), ("\n", OWN))
    rows: list[Row] = [
        {
            "kind": "prose",
            "text": text,
            "prefix": "word " * 60,
            "method": method,
            "step": step,
            "token": token,
            "origin": became,
        }
        for text in range(2)
        for method in (TARGET_ALONE, "SPRINTER")
        for step, (token, became) in enumerate(tokens)
    ]
    summary = summarise(rows)
    assert summary["shares"]["SPRINTER"] == {
        PASSED: 0.3333,
        CONFIRMED: 0,
        REPLACED: 0.3333,
        OWN: 0.3333,
    }
    assert summary["texts"][1]["SPRINTER"] == " The s$ea\n"
    plot(rows, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_a_line_is_no_wider_than_the_picture_and_breaks_no_token() -> None:
    placed = list(sprinter_examples._laid([("four", PASSED)] * 60, 3))
    assert all(MARGIN <= column <= COLUMNS - 4 for _, column, _, _ in placed)
    assert [line for line, *_ in placed] == sorted(3 + n // 25 for n in range(60))
