"""Documents that hold different values: no value of neither, in two processes with a real model."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt import bundled
from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import Address
from dragonrt.node.process.composition import complete_library, load_model
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.cloud_process import CloudProcess, cloud_process
from dragonrt.traces.events import NoticeKind

from .conftest import connected_device, slow_link

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bundled.smollm2_file() is None, reason=f"{bundled.SMOLLM2_WHEEL} is not installed"
    ),
]

CASES = {
    "How much did the wooden boat cost?": ("1,240", "9,990"),
    "When was the bridge opened?": ("14 March 2021", "27 March 2019"),
    "What is the serial number of the pump?": ("KX-7741-B", "KX-9032-D"),
}
TEXTS = (
    "The wooden boat was bought in spring. It cost {} pounds.",
    "The bridge was opened on {} by the mayor.",
    "The serial number of the pump is {}.",
)
GREEDY = Aggregator.GREEDY
WAYS = [
    DragonSettings(),
    DragonSettings(disclose=Disclosure.ANSWER),
    DragonSettings(rule="algorithm1", aggregator=GREEDY),
]


VALUE = re.compile(r"\d[\d.,:/-]*|\b[A-Z][\w-]*")


def owner_of(text: str, values: Sequence[str]) -> str:
    """Return whose value has every number and capitalised word of a text, or neither."""
    named = [each.rstrip(".,:-/") for each in VALUE.findall(text)]
    for side, value in zip(("device", "cloud"), values, strict=True):
        if named and {"It", "The", *VALUE.findall(value)}.issuperset(named):
            return side
    return "neither"


def written(folder: Path, place: int) -> Path:
    for number, (text, values) in enumerate(zip(TEXTS, CASES.values(), strict=True)):
        (folder / f"{number}.txt").write_text(text.format(values[place]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def disagreeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudProcess]:
    folder, index = written(tmp_path_factory.mktemp("cloud"), 1), tmp_path_factory.mktemp("index")
    options = ("--documents", str(folder), "--index", str(index))
    with cloud_process(*options, model=bundled.SMOLLM2) as process:
        process.wait_ready()
        yield process


async def test_an_answer_names_one_value_and_says_what_the_other_side_holds(
    disagreeing: CloudProcess, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    folder = written(tmp_path / "files", 0)
    side = SideSettings(
        "device", bundled.SMOLLM2, "cpu", documents=(folder,), index=tmp_path / "index"
    )
    model = load_model(side)
    library = complete_library(side, model, kv=False)
    far = Address("127.0.0.1", disagreeing.wait_ready(), emulate=slow_link(0.02, 0.01))
    near = replace(far, emulate=None)
    asked = [
        (prompt, Question(seed=seed, sampler=Sampler(temperature), max_tokens=24, documents=1))
        for prompt in CASES
        for seed, temperature in enumerate((0.0, 0.8))
    ]
    whose = set()
    for number, how in enumerate(WAYS):
        # The default answers every prompt at both temperatures, the others at one of them.
        some = asked if not number else asked[number % 2 :: 2]
        plain = replace(how, aggregator=Aggregator.SYNC)
        async with connected_device(model, library, near, plain) as device:
            expected = [(await device.ask(*each)).decoded.tokens for each in some]
        async with connected_device(model, library, far, how) as device:
            for (prompt, question), tokens in zip(some, expected, strict=True):
                reply = await device.ask(prompt, question)
                assert reply.decoded.tokens == tokens, how
                values = CASES[prompt]
                owner = owner_of(reply.text, values)
                assert owner in ("device", "cloud")
                said, other = values if owner == "device" else values[::-1]
                held = "the cloud's" if owner == "device" else "your"
                (notice,) = reply.decoded.notices
                assert notice.kind is NoticeKind.DISAGREEMENT
                assert said.startswith(notice.text.partition(":")[0])
                assert held in notice.text
                assert notice.text.endswith(other)
                whose.add(held)
    assert len(whose) == 2
