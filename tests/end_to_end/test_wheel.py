"""The wheel, installed where no checkout can be seen: what a user types works there."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
OFFLINE = ("--quiet", "--no-index", "--no-deps")

Dragonrt = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`dragonrt` of a fresh environment: this one's dependencies, the project from its wheel."""
    built = tmp_path_factory.mktemp("wheel")
    sources = built / "sources"
    for package in ("dragonrt", "retrieval"):
        shutil.copytree(CHECKOUT / package, sources / package)
    for file in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-CC-BY-SA-4.0"):
        shutil.copy(CHECKOUT / file, sources / file)
    command = (*PIP, "wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", built, sources)
    subprocess.run(command, check=True, cwd=built)
    (wheel,) = built.glob("*.whl")
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", built / "fresh"), check=True)
    python = built / "fresh" / "bin" / "python"
    subprocess.run(
        (*PIP, "--python", python, "install", "--ignore-installed", *OFFLINE, wheel), check=True
    )
    # A path in a .pth file brings the modules found there, not the editable install beside them.
    (packages,) = (built / "fresh").glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.with_name("dragonrt")


@pytest.fixture
def dragonrt(own_data: None, program: Path, tmp_path: Path) -> Dragonrt:
    """Starts `dragonrt` with these arguments in an empty directory, as a user without settings."""
    (tmp_path / "empty").mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "XDG_DATA_HOME": os.environ["XDG_DATA_HOME"],
        "HF_HUB_OFFLINE": "1",
        "TERM": "dumb",
        "COLUMNS": "200",
    }

    def start(*arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            (program, *arguments),
            env=environment,
            cwd=tmp_path / "empty",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )

    return start


def files_in(folder: Path) -> set[Path]:
    """The files of a package, without compiled code."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path for path in files if path.suffix != ".pyc"}


def output(process: "subprocess.Popen[str]") -> str:
    """What a command wrote before it ended well."""
    text, _ = process.communicate()
    assert process.returncode == 0, text
    return text


def test_the_package_is_the_installed_one(program: Path) -> None:
    code = "import dragonrt, retrieval; print(dragonrt.__file__, retrieval.__file__)"
    command = (program.with_name("python"), "-I", "-c", code)
    files = subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout
    installed = [Path(file).parent for file in files.split()]
    assert all(folder.is_relative_to(program.parents[1]) for folder in installed)
    for folder in installed:
        whole = files_in(CHECKOUT / folder.name)
        assert whole - files_in(folder) == set(), "what is bundled is in the wheel, too"


def test_the_demonstration(dragonrt: Dragonrt) -> None:
    assert "bytes/token" in output(dragonrt("demo", "--ask", "When is the book club?"))


def test_a_named_link_and_a_named_controller_are_used(dragonrt: Dragonrt) -> None:
    toy = ("--model", "dragon-small")
    with dragonrt("cloud", *toy, "--port", "0", "--link", "lte") as cloud:
        assert cloud.stdout is not None
        try:
            port = next(
                found[1]
                for line in cloud.stdout
                if (found := re.search(r"listens on .*:(\d+)$", line))
            )
            ways = ("--mode", "speculative", "--controller", "default", "--codec", "qs:100")
            asked = ("--model", "dragon-draft", "--ask", "Who leads the choir?")
            device = dragonrt("device", "--port", port, *ways, *asked)
            assert "tokens" in output(device)
        finally:
            cloud.terminate()
