"""A coordinator and four workers, each a process of its own, on loopback."""

import functools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.distributions import codec, mix
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.question import Question
from dragonrt.node.answers.client_session import Answer
from dragonrt.node.connections.addresses import Address, Member
from dragonrt.node.connections.connector import NotConnectedError
from dragonrt.node.process import programs
from dragonrt.node.process.composition import Loaded
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import speculative_rule
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.cloud_process import CloudProcess, cloud_process
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import Noticed, NoticeKind, OnNotice, Record, RoundDecided, TokenDecided
from dragonrt.traces.file import read_trace

from .conftest import Alone

MODELS = ("dragon-small", "dragon-draft", "dragon-small", "dragon-draft")
WEIGHTS = (4.0, 3.0, 2.0, 1.0)
ASKED = Question(prompt="Why do ships have bells?", seed=4, sampler=Sampler(1.3), max_tokens=32)
PATIENT = FederatedSettings(block_tokens=4)


@pytest.fixture(scope="module")
def workers() -> Iterator[list[CloudProcess]]:
    with ExitStack() as stack:
        yield [stack.enter_context(cloud_process(model=model)) for model in MODELS]


@functools.cache
def loaded(name: str) -> LanguageModel:
    return LanguageModel.load(name, "cpu")


def places_of(workers: list[CloudProcess]) -> list[Member]:
    ports = [worker.wait_ready() for worker in workers]
    return [
        Member(f"127.0.0.1:{port}", Address("127.0.0.1", port), weight)
        for port, weight in zip(ports, WEIGHTS, strict=True)
    ]


async def answer(
    workers: list[Member],
    draft: LanguageModel,
    how: FederatedSettings,
    trace: Path,
    on_token: Callable[[int], None] = lambda token: None,
    on_notice: OnNotice = lambda notice: None,
) -> Answer:
    def hear(record: Record) -> None:
        if isinstance(record.event, TokenDecided):
            on_token(record.event.token)

    side = SideSettings("device", model="dragon-draft", on="cpu", trace=trace)
    async with programs.device(Loaded(side, draft), workers, how, on_notice) as device:
        return await device.asking(ASKED, hear).ask()


def expected(how: FederatedSettings, trace: Path, workers: list[Member]) -> list[int]:
    """Token by token from the models themselves, with the weights that the trace has."""
    models = {name: Alone(loaded(name), ASKED) for name in set(MODELS)}
    code = codec(how.codec, loaded(MODELS[0]).vocabulary)
    rule = speculative_rule(how.rule, Noise(ASKED.seed), ASKED.sampler)
    names = [worker.name for worker in workers]
    tokens: list[int] = []
    for record in read_trace(trace):
        if not isinstance(record.event, RoundDecided):
            continue
        weights = record.event.weights
        for _ in range(record.event.decided):
            uploads = {name: code.quantize(model.p).distribution for name, model in models.items()}
            present = [uploads[MODELS[names.index(each)]] for each in weights]
            target = rule.shape(mix(present, list(weights.values())).to_dense())
            tokens.append(rule.verify(len(tokens), (), None, [target].__getitem__).token)
            for model in models.values():
                model.take(tokens[-1])
    return tokens


def counts(given: Answer) -> AnswerCounts:
    return AnswerCounts.of(given.records)


@pytest.mark.slow
async def test_killing_a_worker_in_mid_answer_costs_no_token(
    workers: list[CloudProcess], draft_model: LanguageModel, tmp_path: Path
) -> None:
    """The last test of this module: the worker stays dead."""
    trace, places = tmp_path / "trace.jsonl", places_of(workers)
    shown: list[int] = []

    def show(token: int) -> None:
        shown.append(token)
        if len(shown) == 6:
            os.kill(workers[0].pid, signal.SIGKILL)

    given = await answer(places, draft_model, PATIENT, trace, show)
    assert given.tokens == shown == expected(PATIENT, trace, places)
    assert len(shown) == ASKED.max_tokens
    assert 0 < counts(given).resampled < counts(given).verified
    assert set(counts(given).missing) == {places[0].name}
    assert len(given.notices) == 1
    assert given.notices[0].kind is NoticeKind.ABSENT
    assert places[0].name in given.notices[0].text
    told: list[Noticed] = []
    given = await answer(places, draft_model, PATIENT, trace, on_notice=told.append)
    assert given.tokens == expected(PATIENT, trace, places)
    found = counts(given)
    assert found.missing == {places[0].name: found.verified}
    assert [(each.kind, places[0].name in each.text) for each in told] == [
        (NoticeKind.UNREACHED, True)
    ]
    with pytest.raises(NotConnectedError):
        await answer(places, draft_model, replace(PATIENT, require_all=True), trace)
