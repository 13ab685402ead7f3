"""The examples of docs/adding.md, run."""

import importlib.util
import re
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dragonrt.distributions import Codec, codec
from dragonrt.modes.mode import Computed, Effects, Finish, Joined, Left, Mode, Prepared, Received
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.registry import MODES, Resources
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.verification import CoupledSpeculation
from dragonrt.side import Side
from dragonrt.testing.scripted import Script, ScriptedModel
from dragonrt.wire.messages import SessionMessage
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
    drawn = where.pictured(None).read_bytes()
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


@pytest.fixture(autouse=True)
def only_here() -> Iterator[None]:
    """The page's mode is registered for one test."""
    yield
    MODES.pop("plain", None)


def driven(modes: dict[Side, Mode], models: dict[Side, ScriptedModel]) -> Finish:
    """Run both sides of an answer to the end of the device's: no network, no time."""
    inboxes: dict[Side, deque[SessionMessage]] = {"device": deque(), "cloud": deque()}
    others: dict[Side, Side] = {"device": "cloud", "cloud": "device"}
    finished: dict[Side, Finish] = {}

    def carry_out(side: Side, effects: Effects) -> None:
        inboxes[others[side]].extend(message for _, message in effects.send)
        if effects.finished is not None:
            finished[side] = effects.finished

    for side, mode in modes.items():
        carry_out(side, mode.handle(Prepared(), 0.0))
        carry_out(side, mode.handle(Joined(others[side], 1), 0.0))
    while "device" not in finished:
        for side, mode in modes.items():
            while inboxes[side]:
                carry_out(side, mode.handle(Received(others[side], inboxes[side].popleft()), 0.0))
            while (work := mode.wanted()) is not None:
                lengths = range(work.span.first, len(work.span.hashes)) if work.span else ()
                hashes = work.span.hashes if work.span else ()
                said = [models[side].said(length, hashes[length]) for length in lengths]
                carry_out(side, mode.handle(Computed(work, work.head(said), 0.0), 0.0))
    return finished["device"]


def token_by_token(question: Question, model: ScriptedModel) -> list[int]:
    """The text of one model, without any drafting."""
    rule = CoupledSpeculation(Noise(question.seed), question.sampler)
    text = TokenPrefix(start_hash(question.seed), question.accepted)
    while len(text) < question.max_tokens and text.tokens[-1:] != [0]:
        p = rule.shape(model.said(len(text), text.hash).p)
        text.append(rule.verify(len(text), (), None, [p]).token)
    return text.tokens


def test_the_mode_gives_the_text_of_the_clouds_model(tmp_path: Path) -> None:
    page: Any = example("mode", tmp_path)
    ends = set()
    for seed in range(60):
        script = Script(seed)
        question = Question(
            seed=seed,
            sampler=Sampler(temperature=seed % 3 / 2),
            max_tokens=1 + seed % 20,
            stop_tokens=(0,),
            accepted=(7, 3) if seed % 20 > 4 and seed % 4 == 0 else (),
        )
        settings, resources = (
            page.PlainSettings(block_tokens=1 + seed % 5),
            Resources(vocabulary=32),
        )
        device, cloud = (make(question, settings, resources) for make in (page.device, page.cloud))
        models: dict[Side, ScriptedModel] = {
            "device": ScriptedModel("device", script),
            "cloud": ScriptedModel("cloud", script),
        }
        ends.add(driven({"device": device, "cloud": cloud}, models))
        assert list(device.decided) == token_by_token(question, models["cloud"])
    assert ends == {Finish.STOP, Finish.LENGTH}


def test_the_mode_goes_on_alone(tmp_path: Path) -> None:
    page: Any = example("mode", tmp_path)
    model = ScriptedModel("device", Script(1))
    question = Question(seed=1, max_tokens=12, stop_tokens=(0,))
    device = page.PLAIN.device(question, page.PlainSettings(), Resources(vocabulary=32))
    device.handle(Prepared(), 0.0)
    device.handle(Joined("cloud", 1), 0.0)
    device.handle(Left("cloud", "the connection was lost", False), 0.0)
    while (work := device.wanted()) is not None:
        said = [model.said(work.span.first, work.span.hashes[-1])]
        device.handle(Computed(work, work.head(said), 0.0), 0.0)
    assert list(device.decided) == token_by_token(question, model)
