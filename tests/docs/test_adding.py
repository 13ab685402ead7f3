"""The examples of docs/adding.md, run."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dragonrt.distributions import Codec, codec
from dragonrt.modes.registry import MODES
from dragonrt.testing import backend_contract
from dragonrt.testing.loop import run
from dragonrt.testing.mode_contract import CHECKS, Case
from scripts.campaign.exploration import observe
from scripts.campaign.scenario import Scenario
from scripts.papers.framework import Settings, draw_again, files, run_experiment

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs" / "adding.md").read_text("utf-8")


def loaded(name: str, file: Path) -> ModuleType:
    """A module of its own from a file, known to `sys.modules` as dataclasses want it."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def example(name: str, directory: Path) -> ModuleType:
    """The module that the page shows in its block of that name."""
    (code,) = re.findall(rf"^```python {name}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    file = directory / f"page_{name}.py"
    file.write_text(code)
    return loaded(file.stem, file)


@pytest.mark.slow
def test_the_figure(tmp_path: Path) -> None:
    figure: Any = example("figure", tmp_path)
    where = files(figure, tmp_path)
    settings = Settings(quick=True, real=False, repeats=8, seed=1, results=where.directory)
    run_experiment(figure, settings, lambda done, all_: None)
    summary = figure.summarise(figure.run(settings, lambda done, all_: None))
    assert summary["shared, 0"]["mean"] == 1.0
    for each in summary.values():
        assert each["mean"] == pytest.approx(each["expected"], abs=0.04)
    drawn = where.pictured().read_bytes()
    assert drawn.startswith(b"\x89PNG")
    draw_again(figure, where)


contract: Any = loaded("codec_contract", CHECKOUT / "tests" / "distributions" / "test_codec.py")
POWERS = "pow2:16"


@pytest.fixture(scope="module", autouse=True)
def powers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The class of the page's codec; this module's copy of the contract knows its name."""
    page: Any = example("codec", tmp_path_factory.mktemp("page"))

    def known(name: str, vocabulary: int) -> Codec:
        if name.startswith("pow2:"):
            made: Codec = page.PowersOfTwo(name, vocabulary, int(name.partition(":")[2]))
            return made
        return codec(name, vocabulary)

    contract.codec = known
    contract.NAMES.append(POWERS)
    return page.PowersOfTwo


class TestTheCodec(contract.TestContract):  # type: ignore[misc]  # a module loaded by its path
    """The contract of every codec, over the page's."""

    @pytest.fixture
    def each(self, powers: Any) -> Codec:
        made: Codec = powers(POWERS, contract.VOCABULARY, 16)
        return made


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Case]:
    """The page's mode, which is registered for one test."""
    page: Any = example("mode", tmp_path)
    yield Case(page.PLAIN, page.PlainSettings(on_loss="wait"))
    del MODES["plain"]


@pytest.mark.parametrize("check", CHECKS)
def test_the_mode_keeps_the_contract(check: Callable[[Case], None], plain: Case) -> None:
    check(plain)


def test_the_campaign_takes_the_mode_as_it_is(plain: Case) -> None:
    for seed in range(12):
        run(observe(Scenario.draw(seed, "plain")))


KEEPS_IT = """
from page_turns import TURNS, TurnsSettings
from dragonrt.testing.mode_contract import CHECKS, Case
for check in CHECKS:
    check(Case(TURNS, TurnsSettings(on_loss="wait")))
"""


def test_a_mode_with_a_message_of_its_own_keeps_the_contract(tmp_path: Path) -> None:
    """In a process of its own, which has that message for good."""
    (code,) = re.findall(r"^```python turns\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "page_turns.py").write_text(code)
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (CHECKOUT, tmp_path)))}
    told = [sys.executable, "-c", KEEPS_IT]
    found = subprocess.run(told, env=where, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("check", backend_contract.CHECKS)
def test_the_backend_keeps_the_contract(
    check: Callable[[backend_contract.Subject], None], tmp_path: Path
) -> None:
    page: Any = example("backend", tmp_path)
    check(backend_contract.Subject(page.MeanBackend()))
