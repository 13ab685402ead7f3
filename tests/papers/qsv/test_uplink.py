"""Ways to send drafts over uplinks: what is measured of one text, and what is said of it."""

from pathlib import Path

import pytest

from dragonrt.backends.prompt import Prompt
from scripts.papers.intervals import Row
from scripts.papers.model_sides import PromptCase
from scripts.papers.qsv import uplink

PAIR = ("dragon-draft", "dragon-small")


@pytest.fixture(scope="module")
def measured() -> list[Row]:
    case = PromptCase(0, PAIR, Prompt("prose", (40, 41, 42)), seed=3)
    patch = pytest.MonkeyPatch()
    patch.setattr(uplink, "CODECS", ("ids", "ksqs:16:100"))
    rows = uplink._measure((10e3, 1e6), 6, case)
    patch.undo()
    return rows


@pytest.mark.slow
def test_tokens_alone_take_their_ids_bits_and_a_faster_uplink_helps(measured: list[Row]) -> None:
    alone, drafting = measured[:2], measured[2:]
    assert {row["codec"] for row in alone} == {uplink.CLOUD}
    assert all(row["tokens_per_s"] == row["tokens"] / (0.05 + 5 * 0.05) for row in alone)
    assert len(drafting) == 2 * 2 * 2
    for row in drafting:
        assert row["tokens_per_call"] >= 1
        assert row["tokens_per_call"] - 1 <= row["drafts_per_call"] <= row["tokens_per_call"]
        assert row["tokens"] == 6
        assert row["bytes_per_token"] > row["bits_per_token"] / 8
        if row["codec"] == "ids":
            assert row["bits_per_token"] * 6 % 13 == pytest.approx(0)
    by_rate = [row["tokens_per_s"] for row in drafting if row["codec"] != "ids"]
    assert by_rate[0] < by_rate[1]
    assert by_rate[2] < by_rate[3]


@pytest.mark.slow
def test_the_summary_pairs_texts_with_the_best_sqs_and_the_picture_is_drawn(
    measured: list[Row], tmp_path: Path
) -> None:
    rows = [
        {**row, "codec": codec, "text": text, "tokens_per_s": speed * (text + 1)}
        for row in measured
        if row["codec"] == "ids"
        for codec, speed in (("ids", 6.0), ("ksqs:16:100", 3.0), ("csqs:0.01:100", 4.0))
        for text in (0, 1)
    ]
    rows.append({**rows[0], "codec": "dense:fp16", "tokens_per_s": None, "tokens_per_call": None})
    rows[-1]["drafts_per_call"] = None
    rows += measured[:2]
    summary = uplink.summarise(rows)
    against = summary["zero_distribution_against_best_sqs"]["10000"]
    assert against["best_sqs"].startswith("csqs:0.01:100")
    assert against["ratio"]["median"] == 1.5
    assert summary["cloud alone"]["tokens_per_call"]["median"] == 1.0
    assert summary["cloud alone"]["drafts_per_call"]["mean"] == 0.0
    assert "dense:fp16, 1 under way" not in summary, "the device never heard the cloud"
    uplink.plot(rows, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
