"""What both sides cost until a device has answered its first question, as with `--ask`.

The questions are piped in, so that the device is still there to be measured; more of them show
whether memory grows. The cloud listens, and the indexes of both sides are complete.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from dragonrt import bundled
from dragonrt.cli.options import option
from dragonrt.errors import DragonError
from dragonrt.service.cloud_process import cloud_process
from dragonrt.side import SIDES, Side
from scripts.bench.unseen import world
from scripts.lab.harness import benchmark, progress, series
from scripts.lab.intervals import Row

DRAGONRT = (sys.executable, "-m", "dragonrt", "--config", os.devnull)
HEAVY = ("torch", "transformers", "sentence_transformers")
IMPORTS = "PYTHONPROFILEIMPORTTIME"
"""Makes a process print what it imports."""
PARTS = ("cpu_s", "clock_s", "mb", "last_mb")


@benchmark(
    {"documents": "{documents}", "side": "{side}"}
    | {"CPU": "{cpu_s[median]:.2f} s", "clock": "{clock_s[median]:.2f} s"}
    | {"memory": "{mb[median]:.0f} MB", "at the end": "{last_mb[median]:.0f} MB"}
    | {"imported": "{imported} of 3"},
    note="From the start of a side until the device has answered once; clock: that of the device. "
    "memory: proportional set size then, and after all answers; half of what both sides share "
    f"counts for each. Medians. imported: of {', '.join(HEAVY)}.",
)
def start(
    *,
    model: Annotated[str, option("Of both sides.", default="smollm2")] = bundled.SMOLLM2,
    notes: Annotated[int, option("Of each side.", default="300", low=1)] = 300,
    answers: Annotated[int, option("Of a device.", default="16", low=1)] = 16,
    repeats: Annotated[int, option("Starts that are measured.", default="3", low=1)] = 3,
) -> Iterator[Row]:
    """Yield both sides' costs, with the sample documents and with notes."""
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as name:
        made = world(1, notes, notes)
        for side in SIDES:
            Path(name, side).mkdir()
            for number, each in enumerate(made[side]):
                Path(name, side, f"{number}.txt").write_text(each.document, encoding="utf-8")
        samples = bundled.documents("device").parent
        for label, folder, known in (
            ("samples", samples, [each.text for each in bundled.questions()]),
            (f"{notes} notes", Path(name), [each.question for each in made["device"]]),
        ):
            questions = [known[number % len(known)] for number in range(answers)]
            yield from costs(label, folder, Path(name, f"of {label}"), questions, model, repeats)


def costs(
    label: str, documents: Path, index: Path, questions: Sequence[str], model: str, repeats: int
) -> Iterator[Row]:
    """Index the documents of both sides; yield what each side costs until it has answered."""
    options: dict[Side, list[str]] = {}
    for side in SIDES:
        progress(f"{label}: index of the {side}")
        own = [f"--model={model}", f"--index={index / side}"]
        indexing = [*DRAGONRT, "index", "--kv", str(documents / side), *own]
        subprocess.run(indexing, check=True, capture_output=True)
        options[side] = [*own, f"--documents={documents / side}"]
    os.environ[IMPORTS] = "1"  # costs time, so in a run of its own
    first = _answered(options, questions[:1])
    del os.environ[IMPORTS]
    runs = [_answered(options, questions) for _ in range(repeats)]
    for side in SIDES:
        found = {part: series([run[side][part] for run in runs]) for part in PARTS}
        yield {"documents": label, "side": side, "imported": first[side]["imported"], **found}


def _answered(options: Mapping[Side, Sequence[str]], questions: Sequence[str]) -> dict[Side, Row]:
    """Return what each side has cost when the device has answered. Raises DragonError."""
    with cloud_process(*options["cloud"]) as cloud, tempfile.TemporaryFile("w+") as log:
        command = [*DRAGONRT, "device", f"--port={cloud.wait_ready()}", "--seed=1", "--json"]
        begin_s, pipe, found = time.perf_counter(), subprocess.PIPE, list[Row]()
        with subprocess.Popen(
            [*command, *options["device"]], stdin=pipe, stdout=pipe, stderr=log, text=True
        ) as device:
            assert device.stdin is not None
            assert device.stdout is not None
            pids = device.pid, cloud.pid
            for question in questions:
                print(question, file=device.stdin, flush=True)
                if '"tokens"' not in (line := device.stdout.readline()):
                    raise DragonError(f"the device did not answer: {line}")
                clock_s = time.perf_counter() - begin_s
                found = found or [_cost(pid) | {"clock_s": clock_s} for pid in pids]
            lasts = [_cost(pid)["mb"] for pid in pids]
            device.stdin.close()
        log.seek(0)
        lines = list(log), cloud.lines
        for cost, last_mb, printed in zip(found, lasts, lines, strict=True):
            names = {each.split("|")[-1].strip() for each in printed}
            cost |= {"last_mb": last_mb, "imported": len(names & {*HEAVY})}
        return dict(zip(SIDES, found, strict=True))


def _cost(pid: int) -> Row:
    """Return a process's seconds of CPU, and its memory. Raises DragonError without /proc."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        kilobytes = int(re.findall(r"^Pss:\s*(\d+) kB", text, re.MULTILINE)[0])
        return {"cpu_s": time.clock_gettime(~pid << 3 | 2), "mb": kilobytes / 1024}
    except (OSError, IndexError):
        raise DragonError("what a process costs is measured on Linux only") from None
