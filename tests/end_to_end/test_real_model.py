"""A real language model, SmolLM2 in its 4-bit file, and its draft: two processes."""

import asyncio
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.control.scheduler import Aggregator
from dragonrt.control.trained import Verifier
from dragonrt.errors import DragonError
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.node.connections.addresses import Address
from dragonrt.node.process.composition import complete_library, load_model
from dragonrt.node.process.library import Library
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.cloud_process import CloudProcess, cloud_process
from dragonrt.side import Side
from dragonrt.traces.events import NoticeKind

from .conftest import connected_device, counts, slow_link
from .test_speculative import said_alone

PLAN = "stall plan.md"
STALLS = """# Summer fair

## Food

The helpers are Omar, Paula and Lena. They sell cake and soup.

## Games

The helpers are Ivan and Hana. They bring ropes and a ball.
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bundled.smollm2_file() is None, reason=f"{bundled.SMOLLM2_WHEEL} is not installed"
    ),
]

ASKED = tuple(each for each in bundled.questions() if each.kind != "both")[:2]
"""One that the device's documents answer, one that the cloud's do."""
IN_PARTS = tuple(each for each in bundled.questions() if each.kind == "both" and each.demo)
"""Each side knows one part; the second one needs the answer to the first."""
VALUES = {
    "How much did the wooden boat cost?": ("1,240", "9,990"),
    "When was the bridge opened?": ("14 March 2021", "27 March 2019"),
    "What is the serial number of the pump?": ("KX-7741-B", "KX-9032-D"),
}
"""Questions to which the documents of each side hold another value."""
DISAGREEING = (
    "The wooden boat was bought in spring. It cost {} pounds.",
    "The bridge was opened on {} by the mayor.",
    "The serial number of the pump is {}.",
)
VALUE = re.compile(r"\d[\d.,:/-]*|\b[A-Z][\w-]*")


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[Side, Path]:
    """The documents behind those questions, and a few others."""
    folders: dict[Side, Path] = {}
    for side in ("device", "cloud"):
        folders[side] = tmp_path_factory.mktemp(side)
        needed = {
            name for each in (*ASKED, *IN_PARTS) for whose, name in each.evidence if whose == side
        }
        others = sorted(path.name for path in bundled.documents(side).iterdir())[:4]
        for name in needed.union(others):
            shutil.copy(bundled.documents(side) / name, folders[side])
        for number, (text, values) in enumerate(zip(DISAGREEING, VALUES.values(), strict=True)):
            (folders[side] / f"{number}.txt").write_text(text.format(values[side == "cloud"]))
    (folders["device"] / PLAN).write_text(STALLS)
    return folders


@pytest.fixture(scope="module")
def real_cloud(
    documents: dict[Side, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CloudProcess]:
    index = tmp_path_factory.mktemp("index")
    options = ("--documents", str(documents["cloud"]), "--index", str(index))
    with cloud_process(*options, model=bundled.SMOLLM2) as process:
        process.wait_ready()
        yield process


@pytest.fixture(scope="module")
def settings(documents: dict[Side, Path], tmp_path_factory: pytest.TempPathFactory) -> SideSettings:
    index = tmp_path_factory.mktemp("index")
    return SideSettings(
        "device", bundled.SMOLLM2, "cpu", documents=(documents["device"],), index=index
    )


@pytest.fixture(scope="module")
def real_model(settings: SideSettings) -> LanguageModel:
    return load_model(settings)


@pytest.fixture(scope="module")
def real_library(settings: SideSettings, real_model: LanguageModel) -> Library:
    library = complete_library(settings, real_model, kv=False)
    assert library is not None
    return library


async def test_each_side_knows_what_the_other_one_asks(
    real_cloud: CloudProcess, real_model: LanguageModel, real_library: Library
) -> None:
    port = real_cloud.wait_ready()
    async with connected_device(real_model, real_library, port, DragonSettings()) as device:
        for asked in ASKED:
            reply = await device.ask(asked.text, Question(max_tokens=40))
            assert asked.answered_by(reply.text), reply.text


async def test_parts_are_answered_by_the_sides_that_know_them(
    real_cloud: CloudProcess, real_model: LanguageModel, real_library: Library
) -> None:
    port, question = real_cloud.wait_ready(), Question(max_tokens=40)
    synchronous = DragonSettings(aggregator=Aggregator.SYNC)
    async with connected_device(real_model, real_library, port, DragonSettings()) as device:
        for asked in IN_PARTS:
            reply = await device.ask(asked.text, question)
            assert asked.answered_by(reply.text), reply.text
            first, second = reply.parts
            assert (first.sources[0].side, second.sources[0].side) == ("device", "cloud")
            oracle = await device.ask(asked.text, question, synchronous)
            assert oracle.decoded.tokens == reply.decoded.tokens


async def test_a_chat_answers_follow_ups_and_does_not_get_worse(
    real_cloud: CloudProcess, real_model: LanguageModel, real_library: Library
) -> None:
    port = real_cloud.wait_ready()
    async with connected_device(real_model, real_library, port, DragonSettings()) as device:
        talk = device.conversation(Question(max_tokens=40))
        assert "Amber Press" in (await talk.ask("Who do I work for?")).text
        assert "Irene Meyer" in (await talk.ask("And who founded it?")).text
        for asked in ASKED:
            reply = await talk.ask(asked.text)
            assert asked.answered_by(reply.text), reply.text
        assert len(talk.history) == 4


async def test_a_list_is_read_by_chunks_and_is_equal_over_every_link(
    real_cloud: CloudProcess, real_model: LanguageModel, real_library: Library
) -> None:
    near = Address("127.0.0.1", real_cloud.wait_ready())
    far = replace(near, emulate=slow_link(0.05, 0.02))
    synchronous = DragonSettings(aggregator=Aggregator.SYNC)
    found = []
    for address, how in ((near, synchronous), (far, DragonSettings())):
        async with connected_device(real_model, real_library, address, how) as device:
            reply = await device.ask(f"List the helpers in {PLAN}", Question(max_tokens=40, seed=1))
            found.append([part.decoded.tokens for part in reply.parts])
            assert [part.decoded.passages[0].place for part in reply.parts] == [0, 83]
            assert re.fullmatch(r".*Omar.*Paula.*; .*Ivan.*Hana.*", reply.text), reply.text
            assert {(each.side, each.file) for each in reply.sources} == {("device", PLAN)}
            chosen = await device.ask("Who brings ropes?", Question(document=PLAN, seed=1))
            assert {each.file for each in chosen.decoded.passages} == {PLAN}
            for asked, document in ((f"Summarise {PLAN}", ""), ("Who?", "no plan.md")):
                with pytest.raises(DragonError):
                    await device.ask(asked, Question(document=document))
    assert found[0] == found[1]


async def test_no_link_load_aggregator_or_rule_changes_a_token(
    real_cloud: CloudProcess, real_model: LanguageModel, real_library: Library
) -> None:
    """In 4 bits, six answers at once over a slow link, from no document to two a side."""
    address = Address("127.0.0.1", real_cloud.wait_ready())
    far_away = replace(address, emulate=slow_link(0.05, 0.02))
    questions = [
        (asked.text, Question(seed=seed, sampler=Sampler(0.8), max_tokens=10, documents=documents))
        for seed, asked in enumerate(ASKED)
        for documents in (0, 1, 2)
    ]
    for rule, aggregators in {
        "coupled": (Aggregator.BOTH, Aggregator.GREEDY),
        "algorithm1": (Aggregator.GREEDY,),
    }.items():
        synchronous = DragonSettings(rule=rule, aggregator=Aggregator.SYNC)
        async with connected_device(real_model, real_library, address, synchronous) as near:
            expected = [(await near.ask(*each)).decoded.tokens for each in questions]
        async with connected_device(real_model, real_library, far_away, synchronous) as far:
            for aggregator in aggregators:
                how = replace(synchronous, aggregator=aggregator)
                replies = await asyncio.gather(*(far.ask(*each, how) for each in questions))
                assert all(counts(reply).alone_from is None for reply in replies)
                assert [reply.decoded.tokens for reply in replies] == expected
    assert len({tuple(tokens) for tokens in expected}) > 2


def owner_of(text: str, values: Sequence[str]) -> str:
    """Return whose value has every number and capitalised word of a text, or neither."""
    named = [each.rstrip(".,:-/") for each in VALUE.findall(text)]
    for side, value in zip(("device", "cloud"), values, strict=True):
        if named and {"It", "The", *VALUE.findall(value)}.issuperset(named):
            return side
    return "neither"


async def test_of_two_values_one_is_used_and_one_is_in_a_notice(
    real_cloud: CloudProcess, real_model: LanguageModel, real_library: Library
) -> None:
    near = Address("127.0.0.1", real_cloud.wait_ready())
    far = replace(near, emulate=slow_link(0.02, 0.01))
    asked = [
        (prompt, Question(seed=seed, sampler=Sampler(temperature), max_tokens=24, documents=1))
        for prompt in VALUES
        for seed, temperature in enumerate((0.0, 0.8))
    ]
    ways = [
        DragonSettings(),
        DragonSettings(disclose=Disclosure.ANSWER),
        DragonSettings(rule="algorithm1", aggregator=Aggregator.GREEDY),
    ]
    whose = set()
    for number, how in enumerate(ways):
        # The default answers every prompt at both temperatures, the others at one of them.
        some = asked if not number else asked[number % 2 :: 2]
        plain = replace(how, aggregator=Aggregator.SYNC)
        async with connected_device(real_model, real_library, near, plain) as device:
            expected = [(await device.ask(*each)).decoded.tokens for each in some]
        async with connected_device(real_model, real_library, far, how) as device:
            for (prompt, question), tokens in zip(some, expected, strict=True):
                reply = await device.ask(prompt, question)
                assert reply.decoded.tokens == tokens, how
                values = VALUES[prompt]
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


async def test_its_draft_changes_no_token(
    real_cloud: CloudProcess, real_model: LanguageModel
) -> None:
    """By rejection above temperature 0 the text is another sample of the same distribution."""
    draft = load_model(SideSettings("device", bundled.DEFAULT_DRAFT, "cpu"))
    assert draft.tokenizer_fingerprint == real_model.tokenizer_fingerprint
    Verifier.for_pair(draft.fingerprint, real_model.fingerprint)  # the bundled one is for these
    near = Address("127.0.0.1", real_cloud.wait_ready())
    far = replace(near, emulate=slow_link(0.05, 0.02))
    coupled = SpeculativeSettings(on_loss="wait", cloud_decodes=False)
    rejection = replace(coupled, rule="rejection", codec="ksqs:16:100")
    asked, accepted = "Why is the sea blue?", 0
    async with (
        connected_device(draft, None, near, coupled) as one,
        connected_device(draft, None, far, coupled) as other,
    ):
        for temperature in (0.0, 0.8):
            question = Question(seed=4, sampler=Sampler(temperature), max_tokens=16, documents=0)
            expected = said_alone(real_model, asked, question)
            for how in (coupled, rejection):
                replies = [await device.ask(asked, question, how) for device in (one, other)]
                texts = [reply.decoded.tokens for reply in replies]
                if temperature and how is rejection:
                    expected = texts[0]
                assert texts == [expected] * 2
                accepted += sum(counts(reply).accepted_tokens for reply in replies)
    assert accepted > 0
