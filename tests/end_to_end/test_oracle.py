"""The oracle for real: two processes, and no link, aggregator or latency changes a token."""

import itertools
from dataclasses import replace

import pytest

from dragonrt.bundled import questions
from dragonrt.chat.conversation import Reply
from dragonrt.experiments.cloud_process import CloudProcess
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.models import Jitter, LinkModel
from dragonrt.link.stream import Stream
from dragonrt.runtime.library import Library, kv_writer
from dragonrt.runtime.modes.dragon import Answer
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.scheduler import Placement
from dragonrt.sampling.samplers import Sampler

from .conftest import PLAN, DeviceAt

WAYS = {
    "coupled": list(Placement),
    "algorithm1": [placement for placement in Placement if placement is not Placement.BOTH],
}
TEMPERATURES = (0.0, 0.8, 3.0)  # at 3 the text wanders, and most drafts are rejected


def slow_link(stream: Stream) -> Stream:
    """50 ms in each direction, with jitter."""
    up, down = (
        LinkModel(latency_s=0.05, jitter=Jitter("uniform", 0.03), seed=5, direction=direction)
        for direction in ("up", "down")
    )
    return EmulatedStream(stream, up, down)


def plan_of(rule: str, placement: Placement, temperature: float, seed: int) -> Plan:
    sampler = Sampler(temperature=temperature)
    return replace(PLAN, seed=seed, sampler=sampler, rule=rule, placement=placement)


@pytest.mark.slow
async def test_every_way_over_every_link_gives_one_text(
    cloud: CloudProcess, device_at: DeviceAt
) -> None:
    port = cloud.wait_ready()
    texts: dict[tuple[str, int, float, str], list[int]] = {}
    asked = [(questions()[n].text, n) for n in range(2)]

    def check(question: str, plan: Plan, reply: Reply[Answer]) -> None:
        assert reply.answer.counts.alone_from is None, reply.answer.notices
        assert reply.answer.counts.divergences == 0
        key = (question, plan.seed, plan.sampler.temperature, plan.rule)
        assert reply.answer.tokens == texts.setdefault(key, reply.answer.tokens), (key, plan)

    async with device_at(port) as near, device_at(port, emulate=slow_link) as far:
        for (question, seed), temperature in itertools.product(asked, TEMPERATURES):
            for rule, placements in WAYS.items():
                for placement in placements:
                    plan = plan_of(rule, placement, temperature, seed)
                    check(question, plan, await near.ask(question, plan))
                    if placement is not Placement.SYNC and temperature == TEMPERATURES[2 * seed]:
                        check(question, plan, await far.ask(question, plan))
    # The noise decides: were the text always the same, the test would show little.
    hot = [tuple(tokens) for (_, _, temperature, _), tokens in texts.items() if temperature > 1]
    assert len(set(hot)) == len(hot)


@pytest.mark.slow
async def test_a_question_for_both_is_answered_from_both(
    cloud: CloudProcess, device_at: DeviceAt
) -> None:
    question = next(question for question in questions() if question.kind == "both")
    async with device_at(cloud.wait_ready()) as device:
        reply = await device.ask(question.text, replace(PLAN, max_tokens=48))
    assert question.answered_by(reply.text)
    named = {(side, source.name) for side, source in reply.sources}
    assert named >= set(question.evidence)
    assert reply.answer.counts.own_compared > 0


@pytest.mark.slow
async def test_stored_kv_is_loaded_and_gives_what_fresh_kv_gives(
    cloud: CloudProcess,
    device_at: DeviceAt,
    library: Library,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port, asked = cloud.wait_ready(), [question.text for question in questions()[:3]]
    plan = plan_of("coupled", Placement.BOTH, 3.0, 11)
    computed: list[int] = []
    async with device_at(port) as device:
        model = device.side.model
        document_kv = type(model).document_kv

        def count(self: object, tokens: "list[int]") -> object:
            computed.append(len(tokens))
            return document_kv(self, tokens)  # type: ignore[arg-type]

        monkeypatch.setattr(type(model), "document_kv", count)
        stored = [await device.ask(question, plan) for question in asked]
        assert computed == []
    nothing_stored = kv_writer(model, tmp_path_factory.mktemp("empty"), limit=0).store
    async with device_at(port, documents=replace(library, kv=nothing_stored)) as device:
        computed.clear()  # of the warm-up
        fresh = [await device.ask(question, plan) for question in asked]
    assert len(computed) == len(asked) * plan.documents
    assert [reply.answer.tokens for reply in fresh] == [reply.answer.tokens for reply in stored]
