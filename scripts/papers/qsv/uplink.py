"""`uplink`: bits per token and tokens per second over uplink rates, for every way to send drafts.

Real models and messages in virtual time: the device drafts blocks of the bundled pair, the link
takes its time for the very bytes. The zero-distribution uplink sends tokens alone and verifies by
coupled noise (SPEC 2); all other codecs send distributions and verify by rejection.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dragonrt.link.profile import LinkProfile
from dragonrt.modes.settings import SpeculativeSettings
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, averages, estimate, estimates, grouped
from scripts.papers.model_sides import BlockPace, PromptCase
from scripts.papers.parallel import measure_all

NAME = "uplink"
SUMMARY = "Bits per token and tokens/s over uplink rates, for every block codec (15 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

RATES = (5e3, 10e3, 20e3, 50e3, 100e3, 200e3, 500e3, 1e6)
RATES_QUICK = (10e3, 50e3, 200e3)
"""Of the uplink, in bit/s."""
IDS, CLOUD = "ids", "cloud alone"
SQS = ("ksqs:16:100", "ksqs:64:100", "csqs:0.05:100", "csqs:0.01:100")
CODECS = (IDS, *SQS, "qs:100", "topp:0.95", "topk:64:residual", "dense:fp16")
CLOUDS = {CLOUD: charts.Look(charts.GREY, "", ":")}
OUTSTANDING = (1, 4)
"""Blocks under way: without and with drafting ahead of the verdicts."""
DRAFT_S, TARGET_S, LATENCY_S = 0.010, 0.050, 0.025
"""Of a forward of either model, and one way of the link."""
TEMPERATURE, LENGTH = 0.8, 4
TOKENS, TOKENS_QUICK = 48, 24


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per text, codec, number of blocks under way, and rate.

    The cloud alone, with nothing under way, is one of the codecs: its tokens cross once, downlink.
    `tokens_per_s` is from the question to the last token; None where the link was so slow that the
    device took it for lost, and went on alone.
    """

    rates, tokens = (RATES_QUICK, TOKENS_QUICK) if settings.quick else (RATES, TOKENS)
    cases = PromptCase.several(settings, settings.repeats * (1 if settings.quick else 4))
    measure = partial(_measure, rates, tokens)
    return [row for rows in measure_all(measure, cases, progress) for row in rows]


def _measure(rates: tuple[float, ...], tokens: int, case: PromptCase) -> list[Row]:

    answers = case.answers()
    question = case.question(TEMPERATURE, tokens)
    alone = answers.alone(question)
    rows: list[Row] = []
    for rate in rates:
        pace = BlockPace(DRAFT_S, TARGET_S, LinkProfile(latency_s=LATENCY_S, up=rate))
        rows.append(
            {
                "kind": case.prompt.kind,
                "text": case.number,
                "codec": CLOUD,
                "outstanding": 0,
                "rate": rate,
                "tokens": alone,
                "bits_per_token": None,
                "bytes_per_token": None,
                "accepted_share": None,
                "tokens_per_call": 1.0,
                "drafts_per_call": 0.0,
                "tokens_per_s": alone / pace.streamed_s(alone),
            }
        )
    for codec in CODECS:
        for outstanding in OUTSTANDING:
            settings = SpeculativeSettings(
                rule="coupled" if codec == IDS else "rejection",
                codec=codec,
                block_tokens=LENGTH,
                pipelined=outstanding > 1,
                cloud_decodes=False,
            )
            for rate in rates:
                pace = BlockPace(DRAFT_S, TARGET_S, LinkProfile(latency_s=LATENCY_S, up=rate))
                answer = answers.answer(question, settings, pace)
                counts, count = answer.counts, len(answer.tokens)
                lost = answer.counts.alone_from is not None
                rows.append(
                    {
                        "kind": case.prompt.kind,
                        "text": case.number,
                        "codec": codec,
                        "outstanding": outstanding,
                        "rate": rate,
                        "tokens": count,
                        "bits_per_token": counts.bits / count,
                        "bytes_per_token": answer.answer.bytes_sent / count,
                        "accepted_share": counts.stood / max(counts.judged, 1),
                        "tokens_per_call": None if lost else count / counts.verified,
                        "drafts_per_call": None if lost else counts.stood / counts.verified,
                        "tokens_per_s": None if lost else count / answer.seconds,
                    }
                )
    return rows


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Medians over texts with their intervals, and the zero-distribution uplink against SQS.

    Tokens per forward of the target say what speculation is worth to a shared cloud; the mean of
    drafts that stand in each compares the rules: coupled of ids, rejection of dense:fp16. The best
    SQS at a rate is the setting and the number of blocks under way with the highest median; the
    ratio is paired by text.
    """
    speeds = estimates(rows, "tokens_per_s", "codec", "outstanding", "rate")
    bits = estimates(
        [row for row in rows if row["tokens_per_s"] is not None],
        "bits_per_token",
        "codec",
        "outstanding",
    )
    calls = estimates(rows, "tokens_per_call", "codec", "outstanding")
    stood = averages(rows, "drafts_per_call", "codec", "outstanding")
    summary: dict[str, Any] = {"zero_distribution_against_best_sqs": _against(rows)}
    for (codec, outstanding), per_call in calls.items():
        measured = bits.get((codec, outstanding))
        name = codec if codec == CLOUD else f"{codec}, {outstanding} under way"
        summary[name] = {
            "tokens_per_call": per_call.to_json(),
            "drafts_per_call": stood[codec, outstanding].to_json(),
            "bits_per_token": measured and measured.to_json(),
            "tokens_per_s": {
                f"{rate:g}": each.to_json()
                for (one, under_way, rate), each in speeds.items()
                if (one, under_way) == (codec, outstanding)
            },
        }
    return summary


def _against(rows: list[Row]) -> dict[str, Any]:
    found = {}
    for (rate,), some in grouped(rows, "rate").items():
        best = {}
        for name, codecs in (("zero", (IDS,)), ("sqs", SQS)):
            own = estimates(
                [row for row in some if row["codec"] in codecs],
                "tokens_per_s",
                "codec",
                "outstanding",
            )
            best[name] = max(own, key=lambda key: own[key].value)
        speeds = {
            name: {
                row["text"]: row["tokens_per_s"]
                for row in some
                if (row["codec"], row["outstanding"]) == best[name]
            }
            for name in best
        }
        ratios = [speeds["zero"][text] / speed for text, speed in speeds["sqs"].items() if speed]
        codec, outstanding = best["sqs"]
        found[f"{rate:g}"] = {
            "best_sqs": f"{codec}, {outstanding} under way",
            "zero": f"{best['zero'][1]} under way",
            "ratio": estimate(ratios).to_json(),
        }
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Tokens per second over the rate, without and with drafting ahead; bits per token."""
    looks = {
        codec: replace(
            look,
            line="--" if codec in SQS else "-",
            label="ids: no distributions" if codec == IDS else codec,
        )
        for codec, look in charts.looks(CODECS).items()
    }
    kbits = [row | {"kbit/s": row["rate"] / 1e3} for row in rows]
    speeds = estimates(kbits, "tokens_per_s", "outstanding", "codec", "kbit/s")
    with charts.picture(path, columns=3, height_inches=4.6, legend=5, width_ratios=(1, 1, 0.8)) as (
        _,
        axes,
    ):
        for axis, outstanding in zip(axes[0], OUTSTANDING, strict=False):
            found = {key[1:]: each for key, each in speeds.items() if key[0] == outstanding}
            of_ids = {rate: each for (codec, rate), each in found.items() if codec == IDS}
            charts.band(axis, of_ids, looks[IDS].colour)  # bands of all would hide the lines
            charts.lines(axis, found, looks, intervals=False)
            alone = {
                rate: each for (under_way, codec, rate), each in speeds.items() if codec == CLOUD
            }
            charts.lines(axis, {(CLOUD, rate): each for rate, each in alone.items()}, CLOUDS)
            axis.set(
                xscale="log",
                xlabel="uplink (kbit/s)",
                title=f"{outstanding} block{'s' * (outstanding > 1)} under way",
                ylim=(0, 1.05 * max(each.value for each in speeds.values())),
            )
        axes[0, 0].set_ylabel("tokens/s, median (95 % of ids)")
        heard = [row for row in rows if row["tokens_per_s"] is not None]
        bits = estimates(heard, "bits_per_token", "outstanding", "codec")
        right = axes[0, 2]
        for place, (codec, look) in enumerate(looks.items()):
            for outstanding, alpha, aside in zip(
                OUTSTANDING, (1.0, 0.45), (-0.2, 0.2), strict=True
            ):
                if (outstanding, codec) in bits:
                    value = bits[outstanding, codec].value
                    right.barh(place + aside, value, 0.4, color=look.colour, alpha=alpha)
        right.set_yticks(range(len(CODECS)), CODECS, fontsize=8)
        right.invert_yaxis()
        right.set(xscale="log", xlim=(5, None), xlabel="bits per token", title="pale: 4 under way")
