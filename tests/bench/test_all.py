"""What benchmarks report: medians with all samples, ratios, and one last line of JSON."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.client_session import Answer
from dragonrt.traces.events import ForwardDone, ForwardStopped, Record, TokenDecided
from scripts.bench import (
    cpu_parts,
)
from scripts.bench import (
    devices as bench_devices,
)
from scripts.bench import (
    engine as bench_engine,
)
from scripts.bench import (
    kill as bench_kill,
)
from scripts.bench import (
    latency as bench_latency,
)
from scripts.bench import (
    loop as bench_loop,
)
from scripts.bench import (
    overhead as bench_overhead,
)
from scripts.bench import (
    serve as bench_serve,
)
from scripts.bench import (
    soak as bench_soak,
)
from scripts.bench.assisted import bench_assisted
from scripts.bench.decode import bench_decode
from scripts.bench.report import Series, bench_table, print_report
from scripts.papers.arena import Given


def answer(first_s: float, step_s: float, tokens: tuple[int, ...]) -> Given:
    """An answer to a question asked at time 0, with evenly spaced tokens; 4 forwards each.

    Of the device's drafts every other one is accepted, of the cloud's all are.
    """
    forwards = [ForwardDone(0, 1, 0.1)] * 3 + [ForwardStopped(0, 0.1)]
    records = [Record(0.0, "device", 1, forward) for forward in forwards]
    for step, token in enumerate(tokens):
        decided = TokenDecided(step, token, step % 2 == 0, True, "own", 0.0, 0.5)
        records.append(Record(first_s + step * step_s, "device", 1, decided))
    return Given(Answer(question=Question(), settings=DragonSettings(), records=records))


def test_a_series_reports_its_median_and_keeps_every_sample() -> None:
    series = Series((3.0, 1.0, 2.00004, 10.0))
    assert series.median == pytest.approx(2.50002)
    assert series.to_json() == {"median": 2.5, "samples": [3.0, 1.0, 2.0, 10.0]}


def test_the_last_line_is_one_json_object_however_narrow_the_terminal() -> None:
    console = Console(width=20)
    table = bench_table("model", "ms")
    table.add_row("toy", "1.5")
    with console.capture() as captured:
        print_report(console, "decode", table, [{"text": "[red]é " * 40}], seed=4, note="[x] " * 20)
    last = captured.get().rstrip("\n").rsplit("\n", 1)[1]
    record = json.loads(last)
    assert record["benchmark"] == "decode"
    assert record["seed"] == 4
    assert record["results"] == [{"text": "[red]é " * 40}]
    assert record["machine"]["cores"] >= 1
    assert {"dragonrt", "python", "torch", "transformers"} <= set(record["versions"])
    assert record["command"].startswith("scripts/")


def test_the_table_of_latencies_fits_into_80_columns() -> None:
    same = [answer(0.31, 0.31, (1, 2, 3))] * 6
    setting = bench_latency.LatencySetting(300, 0.8, False)
    table = bench_table(*bench_latency.HEADINGS)
    table.add_row(*bench_latency._cells(setting, bench_latency._result(setting, same, same)))
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table)
    assert "leaderless" in captured.get()
    assert "…" not in captured.get()


def test_latency_is_judged_answer_by_answer_with_and_without_the_first_token() -> None:
    synchronous = [answer(0.4, 0.3, (1, 2, 3)), answer(0.4, 0.3, (4, 5)), answer(0.4, 0.0, (6,))]
    leaderless = [answer(0.4, 0.03, (1, 2, 3)), answer(0.4, 0.03, (4, 7)), answer(0.4, 0.0, (6,))]
    result = bench_latency._result(
        bench_latency.LatencySetting(300, 0.0, False), synchronous, leaderless
    )
    assert result["synchronous_ms"]["samples"] == pytest.approx([333.3333, 350.0, 400.0])
    assert result["leaderless_ms"]["samples"] == pytest.approx([153.3333, 215.0, 400.0])
    assert result["ratio"] == pytest.approx(215 / 350, abs=1e-4)
    assert result["synchronous_between_ms"]["samples"] == pytest.approx([300.0, 300.0])
    assert result["ratio_between"] == pytest.approx(0.1)
    assert (result["answers"], result["same_texts"]) == (3, 2)
    assert (result["accepted_device"], result["accepted_cloud"]) == (4 / 6, 1.0)


def cpu_us(outside: float) -> dict[str, dict[str, float]]:
    """The same parts of every way, but for what the pair's loop takes."""
    alone = {"forward": 2.0, "head": 0.0, "glue": 0.5, "loop": 0.0, "wire": 0.0}
    pair = alone | {"head": 1.0, "loop": outside - 1.5}
    return {"alone": alone, "pair": pair, "following": pair}


def test_the_pair_is_compared_with_the_median_of_its_slower_side() -> None:
    one = answer(0.1, 0.01, (1, 2, 3))
    result = bench_overhead._result(
        "toy",
        2,
        3,
        [
            bench_overhead.Measured(2.0, 3.0, 3.3, 1.5, one, cpu_us(3.0)),
            bench_overhead.Measured(9.0, 3.0, 3.6, 1.5, one, cpu_us(9.0)),
            bench_overhead.Measured(2.0, 3.0, 3.0, 1.8, one, cpu_us(2.0)),
        ],
    )
    assert result["ratio"] == pytest.approx(1.1)
    assert result["ratio_following"] == pytest.approx(0.5)
    assert result["device_forwards_per_token"] == pytest.approx(4 / 3, abs=1e-4)
    assert result["device_alone_ms"]["samples"] == [2.0, 9.0, 2.0]
    pair = result["cpu_us"]["pair"]
    assert (pair["head"], pair["loop"], pair["outside"], pair["sum"]["median"]) == (1, 1.5, 3, 5)
    rows = dict(bench_overhead._cpu_cells(result))
    assert rows["alone"][-1] == "1.00"
    assert rows["pair"][-1] == "2.00"


def test_calls_within_calls_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    clock = cpu_parts.PartClock()

    class Clocks:
        process_time = thread_time = staticmethod(lambda: now_s)

    def work(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def head() -> None:
        work(0.25)
        clock.timed("forward", work)(2.0)
        clock.timed("forward", work)(4.0)

    monkeypatch.setattr(cpu_parts, "time", Clocks)
    clock.timed("head", head)()
    clock.timed("wire", work)(0.5)
    work(1.0)
    now = clock.now()
    assert (now["forward"], now["head"], now["wire"], now["loop"]) == (6.0, 0.25, 0.5, 7.25)


def test_what_is_timed_is_there_and_stays_as_it_was() -> None:
    def targets() -> list[Any]:
        return [getattr(owner, name) for _, owner, name in cpu_parts._TIMED]

    before = targets()
    with cpu_parts.measured_parts():
        assert not set(before) & set(targets())
    assert targets() == before


def measured(bench: Callable[..., object], **options: Any) -> list[dict[str, Any]]:
    """The results of a benchmark, as its last line has them."""
    console = Console(width=200)
    with console.capture() as captured:
        bench(output=console, messages=Console(quiet=True), **options)
    found: list[dict[str, Any]] = json.loads(captured.get().rstrip("\n").rsplit("\n", 1)[1])[
        "results"
    ]
    return found


def test_http_is_compared_with_the_terminal_answer_by_answer() -> None:
    def timed(first: float, whole: float, cpu: float) -> bench_serve.Answered:
        return bench_serve.Answered(first, whole, cpu / 2, cpu, "text", 10)

    pairs = [(timed(10, 100, 5), timed(13, 110, 6)), (timed(30, 300, 7), timed(31, 290, 7))]
    result = bench_serve.serve_result([*pairs, (timed(20, 200, 6), timed(22, 200, 8))])
    assert result["first_ms"]["terminal"]["median"] == 20
    assert result["first_ms"]["difference"] == {"median": 2, "samples": [3, 1, 2]}
    assert result["cpu_ms"]["difference"]["median"] == 1
    assert result["first_cpu_ms"]["difference"]["median"] == 0.5
    assert (result["tokens_per_s"], result["ratio"]) == ({"terminal": 50, "http": 50}, 1.0)
    assert result["same_texts"] is True


@pytest.mark.slow
def test_extend_and_generate_decode_the_same_tokens() -> None:
    (result,) = measured(
        bench_decode,
        models=("dragon-draft",),
        rows=(2,),
        prompt_tokens=40,
        new_tokens=5,
        repeats=1,
    )
    assert result["same_tokens"] == 5
    assert result["extend_ms"]["median"] > 0
    assert result["generate_ms"]["median"] > 0


@pytest.mark.slow
def test_speculative_and_assisted_decoding_say_the_same_at_temperature_0() -> None:
    results = measured(
        bench_assisted, temperatures=(0.0,), length=2, new_tokens=5, prompt_count=2, repeats=1
    )
    assert [result["kind"] for result in results] == ["answers", "prose"]
    for result in results:
        assert result["same_texts"] is True
        speeds = {way: each["median"] for way, each in result["tokens_per_s"].items()}
        assert set(speeds) == {"generate", "assisted", "assisted:2", "alone", "speculative"}
        faster = max(speeds["assisted"], speeds["assisted:2"])
        assert result["ratio"] == pytest.approx(speeds["speculative"] / faster, rel=0.01)


def test_a_loop_knows_the_longest_of_its_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    def work(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    class Clocks:
        perf_counter = thread_time = staticmethod(lambda: now_s)

    monkeypatch.setattr(bench_loop, "time", Clocks)

    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, bench_loop.MeasuredLoop)
        loop.call_soon(work, 0.25)
        loop.call_later(0.0, work, 0.75)
        loop.call_soon_threadsafe(work, 0.5)
        done = asyncio.Event()
        loop.call_later(0.0, done.set)
        await done.wait()
        return loop.wall_s

    with asyncio.Runner(loop_factory=bench_loop.MeasuredLoop) as runner:
        assert runner.run(main()) == 0.75


@pytest.mark.slow
def test_sessions_draft_the_same_whether_they_share_forwards_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_engine, "BUFFER_BYTES", 2**20)
    (result,) = measured(
        bench_engine.bench_engine,
        models=("dragon-draft",),
        dtypes=("float32",),
        sessions=(3,),
        tokens=12,
        repeats=1,
        threads=1,
    )
    assert (result["model"], result["dtype"], result["sessions"]) == ("dragon-draft", "float32", 3)
    assert result["same_texts"] is True
    shared, single = result["shared"], result["single"]
    assert shared["forwards_per_token"] < 0.9 < single["forwards_per_token"]
    assert 0 < shared["p50_ms"] <= shared["p95_ms"]
    assert result["ratio"] == pytest.approx(
        shared["tokens_per_s"]["median"] / single["tokens_per_s"]["median"], rel=0.01
    )


@pytest.mark.slow
@pytest.mark.parametrize("way", bench_loop.WAYS)
def test_every_mode_answers_beside_a_loop_that_is_measured(way: str) -> None:
    (result,) = measured(bench_loop.bench_loop, vocabularies=(500,), ways=(way,), tokens=4)
    assert (result["mode"], result["tokens"]) == (way, 4)
    assert result["longest_callback_ms"] > 0


def test_kills_are_told_by_the_hosts_that_were_left() -> None:
    kills = [
        bench_kill.Kill(3, 1, True, True, None, 0.25),
        bench_kill.Kill(9, 1, False, True, None, 0.5),
    ]
    result = bench_kill._result(1, kills)
    assert (result["kills"], result["same"], result["alone"]) == (2, 1, 0)
    assert (result["longest_gap_s"], result["points"]) == (0.5, [3, 9])


@pytest.mark.slow
def test_a_crowd_of_devices_is_answered() -> None:
    (result,) = measured(bench_devices.bench_devices, devices=3, seconds=0.5, tokens=3)
    assert result["answers"] >= 3
    assert (result["alone"], result["failed"]) == (0, 0)
    assert len(result["memory_mb"]) == bench_devices.SAMPLES + 1


def test_growth_is_that_after_the_warm_up() -> None:
    sizes = [
        bench_soak.Size(100 * n, 700.0 + (50.0 if n > 10 else 5.0 * n), 800.0 + 0.3 * n)
        for n in range(1, 21)
    ]
    device, cloud = bench_soak.growths(sizes)
    assert (device["side"], device["mb_per_1000"], device["warm_mb"]) == ("device", 0.0, 750.0)
    assert (cloud["side"], cloud["mb_per_1000"], cloud["last_mb"]) == ("cloud", 3.0, 806.0)
    low, high = cloud["interval"]
    assert low <= 3.0 <= high
    assert high - low < 0.01
