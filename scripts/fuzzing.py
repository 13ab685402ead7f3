"""`scripts/fuzz`: coverage-guided fuzzing (atheris, libFuzzer) of every target, from a kept corpus.

Each target runs in a process of its own, within bounds of memory and of time for one input. What
breaks it is written to results/fuzz, and the exit code is 1.
"""

import argparse
import base64
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
FOUND = ROOT / "results" / "fuzz"

MOST_KEPT, LONGEST_KEPT = 64, 512
BOUNDS = ("-rss_limit_mb=1024", "-timeout=5", "-max_len=4096", "-print_final_stats=1")
"""Of an input; torch and the libraries take 350 MB."""
INSTRUMENTED = ["dragonrt.wire", "dragonrt.distributions", "dragonrt.link", "dragonrt.modes"]
INSTRUMENTED += ["dragonrt.service.http", "dragonrt.settings", "noise", "retrieval"]


def read_corpus(target: str) -> list[bytes]:
    """The kept inputs of a target: a line of base64 each."""
    path = CORPUS / f"{target}.txt"
    return [base64.b64decode(line) for line in path.read_text().split()] if path.exists() else []


def keep_in_corpus(target: str, folder: Path) -> None:
    """Add the shortest of a folder's inputs to the kept ones."""
    found = sorted((path.read_bytes() for path in folder.iterdir()), key=len)[:MOST_KEPT]
    kept = {*read_corpus(target), *(each for each in found if len(each) <= LONGEST_KEPT)}
    lines = sorted(base64.b64encode(each).decode() for each in kept)
    (CORPUS / f"{target}.txt").write_text("".join(f"{line}\n" for line in lines))


def main() -> int:
    """Fuzz each target for its share of the time; return the exit status."""
    from scripts.fuzz_targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, help="for all targets together")
    parser.add_argument("targets", nargs="*", default=list(TARGETS), help="all, unless named")
    parser.add_argument("--runs", type=int, help="inputs of each target, however long that takes")
    parser.add_argument("--keep", action="store_true", help="keep what reached something new")
    asked = parser.parse_args()
    for name in asked.targets:
        if name not in TARGETS:
            parser.error(f"there is no target {name}: choose from {', '.join(TARGETS)}")
    try:
        import atheris  # noqa: F401
    except ImportError:
        print("fuzz: passed over, as atheris is not installed: pip install '.[fuzz]'")
        return 0
    broken, total = [], 0
    bound = f"-max_total_time={max(1, round(asked.seconds / len(asked.targets)))}"
    if asked.runs:
        bound = f"-runs={asked.runs}"
    for name in asked.targets:
        runs, line, fine = fuzz(name, bound, keep=asked.keep)
        total += runs
        print(f"{name:<12} {line}", flush=True)
        if not fine:
            broken.append(name)
    end = f"broken: {', '.join(broken)}" if broken else "none broke anything"
    print(f"fuzz: {total:,} inputs; {end}")
    return 1 if broken else 0


def fuzz(target: str, bound: str, *, keep: bool) -> tuple[int, str, bool]:
    """Run one target; the number of its inputs, a line about them, and whether all was well."""
    FOUND.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        seeds, new = Path(folder) / "seeds", Path(folder) / "new"
        for place in (seeds, new):
            place.mkdir()
        for number, data in enumerate(read_corpus(target)):
            (seeds / str(number)).write_bytes(data)
        command = (sys.executable, "-m", "scripts.fuzzing", "--one", target, *BOUNDS, bound)
        done = subprocess.run(
            [*command, f"-artifact_prefix={FOUND}/{target}-", str(new), str(seeds)],
            capture_output=True,
            text=True,
            check=False,
            errors="replace",
            cwd=ROOT,
        )
        said = done.stdout + done.stderr
        if keep and done.returncode == 0:
            keep_in_corpus(target, new)
    numbers = dict(re.findall(r"stat::(\w+): +(\d+)", said))
    covered = (re.findall(r" cov: (\d+) ", said) or ["0"])[-1]
    runs = int(numbers.get("number_of_executed_units", 0))
    line = (
        f"{runs:>9,} inputs, {numbers.get('average_exec_per_sec', '?')}/s, {covered} places "
        f"reached, at most {numbers.get('peak_rss_mb', '?')} MB"
    )
    if done.returncode:
        told = [each for each in said.splitlines() if not each.startswith(("#", "INFO:"))]
        sys.stderr.write("\n".join(told[-40:]) + "\n")
        line += f", BROKEN (exit code {done.returncode}): see {FOUND}"
    return runs, line, done.returncode == 0


def fuzz_here(target: str, arguments: list[str]) -> None:
    """libFuzzer on one target; it ends the process."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        from scripts.fuzz_targets import TARGETS

        TARGETS[target](b"")  # what it imports itself
    atheris.Setup([__file__, *arguments], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        fuzz_here(sys.argv[2], sys.argv[3:])
    sys.exit(main())
