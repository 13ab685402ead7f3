"""`uplink`: bits per token and tokens per second over uplink rates, for every way to send drafts.

Real models and messages in virtual time: the device drafts blocks for the target, the link takes
its time for the very bytes. The zero-distribution uplink sends tokens alone and verifies by coupled
noise (SPEC 2); all other codecs send distributions and verify by rejection.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dragonrt.link.profile import LinkProfile
from dragonrt.modes.speculative.settings import SpeculativeSettings
from scripts.lab.intervals import Row, estimate, estimates, grouped, having, table
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.speculation import BlockPace, PromptCase

NAME = "uplink"
SUMMARY = "Bits per token and tokens/s over uplink rates, for every block codec (15 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

RATES = (5e3, 10e3, 20e3, 50e3, 100e3, 200e3, 500e3, 1e6)
RATES_QUICK = (10e3, 50e3, 200e3)
"""Of the uplink, in bit/s."""
IDS, CLOUD = "ids", "cloud alone"
SQS = ("ksqs:16:100", "ksqs:64:100", "csqs:0.05:100", "csqs:0.01:100")
CODECS = (IDS, *SQS, "qs:100", "topp:0.95", "topk:64:residual", "dense:fp16")
OUTSTANDING = (1, 4)
"""Blocks under way: without and with drafting ahead of the verdicts."""
DRAFT_S, TARGET_S, LATENCY_S = 0.010, 0.050, 0.025
"""Of a forward of either model, and one way of the link."""
TEMPERATURE, LENGTH = 0.8, 4
TOKENS, TOKENS_QUICK = 48, 24


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per text, codec, number of blocks under way, and rate."""
    rates, tokens = settings.size((RATES, TOKENS), (RATES_QUICK, TOKENS_QUICK))
    cases = list(PromptCase.several(settings, settings.size(2 * settings.repeats, 1)))
    return measure_all(partial(_measure, rates, tokens), cases, progress, processes=True)


def _measure(rates: tuple[float, ...], tokens: int, case: PromptCase) -> list[Row]:
    answers = case.answers(TEMPERATURE, tokens)
    paces = {
        rate: BlockPace(DRAFT_S, TARGET_S, LinkProfile(latency_s=LATENCY_S, up=rate))
        for rate in rates
    }

    def row(codec: str, outstanding: int, rate: float) -> Row:
        named = {"codec": codec, "outstanding": outstanding, "rate": rate}
        if codec == CLOUD:
            costs = answers.streamed(paces[rate])
        else:
            settings = SpeculativeSettings(
                rule="coupled" if codec == IDS else "rejection",
                codec=codec,
                block_tokens=LENGTH,
                pipelined=outstanding > 1,
                cloud_decodes=False,
            )
            costs = answers.costs(settings, paces[rate])
        return {"kind": case.prompt.kind, "text": case.number} | named | costs

    ways = [(CLOUD, 0), *((codec, each) for codec in CODECS for each in OUTSTANDING)]
    return [row(*way, rate) for way in ways for rate in rates]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return medians over texts, and the zero-distribution uplink against SQS."""
    ways = ("codec", "outstanding")
    return {
        "zero_distribution_against_best_sqs": _against(rows),
        "calls": table(rows, *ways, mean=["accepted_per_call"], median=["tokens_per_call"]),
        "bits": table(_arrived(rows), *ways, median=["bits_per_token"]),
        "speeds": table(rows, *ways, "rate", median=["tokens_per_s"]),
    }


def _arrived(rows: list[Row]) -> list[Row]:
    """Return the rows of answers whose link was not lost."""
    return [row for row in rows if row["tokens_per_s"] is not None]


def _against(rows: list[Row]) -> dict[str, Any]:
    """Return the ratio of speeds, paired by text, to the SQS with the highest median at a rate."""
    found = {}
    for (rate,), some in grouped(rows, "rate").items():
        best, speeds = {}, {}
        for name, codecs in (("zero", (IDS,)), ("sqs", SQS)):
            of = [row for row in some if row["codec"] in codecs]
            own = estimates(of, "tokens_per_s", "codec", "outstanding")
            codec, outstanding = best[name] = max(own, key=lambda key: own[key].value)
            at_best = having(of, codec=codec, outstanding=outstanding)
            speeds[name] = {row["text"]: row["tokens_per_s"] for row in at_best}
        ratios = [speeds["zero"][text] / speed for text, speed in speeds["sqs"].items() if speed]
        found[f"{rate:g}"] = best | {"ratio": estimate(ratios).to_json()}
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Draw tokens per second over the rate, without and with drafting ahead; bits per token."""
    looks = {CLOUD: charts.Look(charts.GREY, "", ":")} | {
        codec: replace(
            look,
            line="--" if codec in SQS else "-",
            label="ids: no distributions" if codec == IDS else codec,
        )
        for codec, look in charts.looks(CODECS).items()
    }
    kbits = [row | {"kbit/s": row["rate"] / 1e3} for row in rows]
    highest = 1.05 * max(
        each.value
        for each in estimates(rows, "tokens_per_s", "codec", "outstanding", "rate").values()
    )
    with charts.picture(path, columns=3, height_inches=4.6, legend=5, width_ratios=(1, 1, 0.8)) as (
        _,
        axes,
    ):
        *panels, right = axes[0]
        for axis, outstanding in zip(panels, OUTSTANDING, strict=True):
            some = [row for row in kbits if row["outstanding"] in (0, outstanding)]
            found = estimates(some, "tokens_per_s", "codec", "kbit/s")
            charts.lines(axis, found, looks, intervals=False)
            of_ids = {rate: each for (codec, rate), each in sorted(found.items()) if codec == IDS}
            axis.fill_between(  # bands of all would hide the lines
                list(of_ids),
                [each.low for each in of_ids.values()],
                [each.high for each in of_ids.values()],
                color=looks[IDS].colour,
                alpha=0.12,
                linewidth=0,
            )
            axis.set(
                xscale="log",
                xlabel="uplink (kbit/s)",
                title=f"{outstanding} block{'s' * (outstanding > 1)} under way",
                ylim=(0, highest),
            )
        panels[0].set_ylabel("tokens/s, median (95 % of ids)")
        bits = estimates(_arrived(rows), "bits_per_token", "codec", "outstanding")
        for (codec, outstanding), each in bits.items():
            aside, alpha = (-0.2, 1.0) if outstanding == OUTSTANDING[0] else (0.2, 0.45)
            place = CODECS.index(codec) + aside
            right.barh(place, each.value, 0.4, color=looks[codec].colour, alpha=alpha)
        right.set_yticks(range(len(CODECS)), CODECS, fontsize=8)
        right.invert_yaxis()
        right.set(xscale="log", xlim=(5, None), xlabel="bits per token", title="pale: 4 under way")
