"""scripts/netns-lab says what is wrong in one line and always takes down what it set up.

The commands that change a network are stand-ins here: they write down how they were called.
"""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from scripts.packet_relay import delay_s, tun

SCRIPT = Path(__file__).parents[2] / "scripts" / "netns-lab"

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
    pytest.mark.skipif(
        not (SCRIPT.parents[1] / ".venv/bin/python").exists(), reason="it runs a checkout's .venv"
    ),
]


@pytest.fixture
def lab(tmp_path: Path) -> "Lab":
    return Lab(tmp_path)


class Lab:
    """The script with stand-ins for id, ip and tc; `ip` fails at calls that hold `fails_at`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"

    def stand_in(self, name: str, body: str) -> None:
        command = self.folder / name
        command.write_text(f"#!/bin/sh\n{body}\n")
        command.chmod(0o755)

    def run(
        self, *arguments: str, user: int = 0, fails_at: str = "nothing"
    ) -> "subprocess.CompletedProcess[str]":
        self.stand_in("id", f"echo {user}")
        refuse = f'case "$*" in *"{fails_at}"*) echo "RTNETLINK: not permitted" >&2; exit 1;; esac'
        serve = 'case "$*" in *"dragonrt cloud"*) echo "listens on it:1" >&2; exec sleep 60;; esac'
        self.stand_in("ip", f'echo "$*" >> {self.calls}\n{refuse}\n{serve}')
        self.stand_in("tc", "echo 'Error: Specified qdisc kind is unknown.' >&2; exit 2")
        return subprocess.run(
            [SCRIPT, *arguments],
            capture_output=True,
            encoding="utf-8",
            env={
                "PATH": f"{self.folder}:/usr/sbin:/usr/bin:/sbin:/bin",
                "TMPDIR": str(self.folder),
            },
            check=False,
        )

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


def last_line(done: "subprocess.CompletedProcess[str]") -> str:
    return done.stderr.splitlines()[-1]


def test_it_needs_root_and_touches_nothing_without(lab: Lab) -> None:
    done = lab.run(user=1000)
    assert done.returncode == 1
    assert last_line(done) == "netns-lab: network namespaces need root: sudo scripts/netns-lab"
    assert lab.called() == []


@pytest.mark.parametrize(
    ("fails_at", "says"),
    [
        ("netns add", "the kernel refuses network namespaces: RTNETLINK: not permitted"),
        ("link add", "the kernel refuses a veth pair: RTNETLINK: not permitted"),
    ],
)
def test_what_the_kernel_refuses_is_said_and_taken_down(lab: Lab, fails_at: str, says: str) -> None:
    done = lab.run(fails_at=fails_at)
    assert done.returncode == 1
    assert says in last_line(done)
    made = [call.split()[-1] for call in lab.called() if call.startswith("netns add")]
    deleted = [call.split()[-1] for call in lab.called() if call.startswith("netns delete")]
    assert made
    assert set(made) <= set(deleted)


def test_a_cloud_that_does_not_start_is_reported_without_netem(lab: Lab) -> None:
    done = lab.run("--delay", "20", fails_at="netns exec")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0].startswith("netns-lab: the kernel refuses netem (Error: Specified qdisc kind")
    try:
        os.close(tun("dragonrt-test"))
        assert "the cloud did not start: RTNETLINK: not permitted" in lines[-1]
    except OSError:
        assert "no packets are carried between TUN devices" in lines[-1]
    assert sum(call.startswith("netns delete") for call in lab.called()) == 2
    assert [path.name for path in lab.folder.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ((), "scripts.papers latency --quick --real --cloud 10.213.77.2:7070"),
        (("ttft", "--repeats", "3"), "scripts.papers ttft --quick --real --cloud 10.213.77.2:7070"),
        (("serving", "--clients", "4"), "scripts.bench serving --at 10.213.77.2:7070"),
    ],
)
def test_the_experiment_of_that_name_runs_on_the_device(
    lab: Lab, arguments: tuple[str, ...], asked: str
) -> None:
    done = lab.run("--delay", "0", *arguments)
    assert done.returncode == 0, done.stderr
    (call,) = (call for call in lab.called() if "-m scripts." in call)
    assert asked in call
    assert call.endswith(" ".join(arguments[1:]))
    (cloud,) = (call for call in lab.called() if "dragonrt cloud" in call)
    assert "--trace" not in cloud


def test_packets_are_late_within_the_jitter_or_lost() -> None:
    random = Random(1)
    taken = [delay_s(50, 20, 0.25, random) for _ in range(2000)]
    kept = [each for each in taken if each is not None]
    assert pytest.approx(1 - len(kept) / len(taken), abs=0.03) == 0.25
    assert (min(kept), max(kept)) == pytest.approx((0.03, 0.07), abs=0.001)
    assert kept != sorted(kept), "so packets overtake each other"
