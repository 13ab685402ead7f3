"""Two processes answer with --trace, and `dragonrt trace --replay` decides the answer again."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dragonrt.bundled import documents
from dragonrt.service.cloud_process import listening_process

from .conftest import plain_environment

PAGE = Path(__file__).parents[2] / "docs" / "adding.md"
QUESTION = "What do you need to make lemon cake?"
TIME_LIMIT_S = 120.0


def dragonrt(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", *command],
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fifth mode, as its page shows it: one file outside the package."""
    (code,) = re.findall(r"^```python mode\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    (tmp_path / "plain.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(PAGE.parents[1])]))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["dragon", "plain"])
def test_an_answer_of_two_processes_replays(
    mode: str, plain: None, cloud_index: Path, device_index: Path, tmp_path: Path
) -> None:
    program = "plain" if mode == "plain" else "dragonrt"
    ours, theirs, model = tmp_path / "device", tmp_path / "cloud", ("--model", "dragon-small")
    with listening_process(
        *(program, "--config", os.devnull, "cloud", "--port", "0", *model),
        *("--documents", str(documents("cloud")), "--index", str(cloud_index)),
        *("--trace", str(theirs)),
    ) as cloud:
        port = cloud.wait_ready()
        asked = dragonrt(
            *(program, "device", "--port", str(port), "--mode", mode, *model),
            *("--documents", str(documents("device")), "--index", str(device_index)),
            *("--ask", QUESTION, "--seed", "3", "--trace", str(ours), "--json"),
        )
    assert asked.returncode == 0, asked.stderr
    answer = json.loads(asked.stdout)
    assert answer["mode"] == mode
    assert "three lemons" in answer["text"]

    again = dragonrt(program, "trace", str(ours), str(theirs), "--replay")
    assert again.returncode == 0, again.stderr
    device, cloud_side = again.stdout.splitlines()
    assert device.startswith(f"device, mode {mode}: ")
    assert f" {len(answer['tokens'])} tokens: as recorded" in device
    assert cloud_side.startswith(f"cloud, mode {mode}: ")

    changed = ours.read_text().replace('"token":', '"token":1', 1)  # any input but as it was
    ours.write_text(changed)
    assert dragonrt(program, "trace", str(ours), "--replay").returncode == 1
    for text in (changed, theirs.read_text()):
        assert "lemon" not in text
