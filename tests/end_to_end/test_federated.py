"""A coordinator and four workers, each a process of its own, on loopback."""

import functools
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt.distributions import codec
from dragonrt.errors import DragonError
from dragonrt.experiments.cloud_process import CloudProcess, cloud_process
from dragonrt.language.model import LanguageModel
from dragonrt.language.relevance import aggregate_locally
from dragonrt.runtime.endpoints import Address
from dragonrt.runtime.federation import WorkerAddress, coordinator
from dragonrt.runtime.local_side import fitting_prompt
from dragonrt.runtime.modes.federated import Answer, Asking, FederatedPlan
from dragonrt.runtime.process import SideSettings
from dragonrt.sampling import Sampler, mixture

MODELS = ("dragon-small", "dragon-opt", "dragon-small", "dragon-opt")
WEIGHTS = (4.0, 3.0, 2.0, 1.0)
QUESTION = "Why do ships have bells?"
PLAN = FederatedPlan(seed=4, sampler=Sampler(1.3), block_tokens=4, max_tokens=32)


@pytest.fixture(scope="module")
def workers() -> Iterator[list[CloudProcess]]:
    with ExitStack() as stack:
        yield [stack.enter_context(cloud_process("--model", model)) for model in MODELS]


@pytest.fixture(scope="module")
def draft() -> LanguageModel:
    return LanguageModel.load("dragon-draft", "cpu")


@functools.cache
def loaded(name: str) -> LanguageModel:
    return LanguageModel.load(name, "cpu")


def addresses(workers: list[CloudProcess]) -> list[WorkerAddress]:
    return [
        WorkerAddress(Address("127.0.0.1", worker.wait_ready()), weight)
        for worker, weight in zip(workers, WEIGHTS, strict=True)
    ]


async def answer(
    workers: list[WorkerAddress],
    draft: LanguageModel,
    plan: FederatedPlan,
    trace: Path,
    on_token: Callable[[int], None] = lambda token: None,
    on_notice: Callable[[str], None] = lambda line: None,
) -> Answer:
    settings = SideSettings("device", model="dragon-draft", device="cpu", trace=trace)
    async with coordinator(
        settings, draft, None, workers, require_all=plan.require_all, on_notice=on_notice
    ) as (side, members):
        asking = Asking(
            side,
            members,
            plan,
            on_decision=lambda decision: on_token(decision.token),
            on_notice=lambda text: None,
        )
        return await asking.ask(QUESTION)


def expected(plan: FederatedPlan, trace: Path, workers: list[WorkerAddress]) -> list[int]:
    """Token by token from the models themselves, with the weights that the trace has."""
    models = {name: loaded(name) for name in set(MODELS)}
    rule, names = plan.speculative_rule(), [worker.name for worker in workers]
    sequences = {}
    for name, model in models.items():
        prompt = fitting_prompt(model, QUESTION, (), model.context_length - plan.max_tokens)
        sequence = model.sequence([model.document_kv(())], len(prompt) + plan.max_tokens)
        sequences[name] = (sequence, sequence.extend(prompt))
    tokens: list[int] = []
    for event in map(json.loads, trace.read_text().splitlines()):
        if event["event"] != "round":
            continue
        for _ in range(event["decided"]):
            uploads = {}
            for name, (_, rows) in sequences.items():
                code = codec(plan.codec, models[name].vocabulary)
                uploads[name] = code.quantize(aggregate_locally(rows, [0.0])[0]).distribution
            present = [uploads[MODELS[names.index(each)]] for each in event["weights"]]
            target = rule.shape(mixture(present, list(event["weights"].values())))
            tokens.append(rule.verify(len(tokens), (), None, [target]).token)
            for name, (sequence, _) in sequences.items():
                sequences[name] = (sequence, sequence.extend([tokens[-1]]))
    return tokens


@pytest.mark.slow
async def test_four_workers_answer(
    workers: list[CloudProcess], draft: LanguageModel, tmp_path: Path
) -> None:
    trace, places = tmp_path / "trace.jsonl", addresses(workers)
    plan = replace(PLAN, require_all=True)
    given = await answer(places, draft, plan, trace)
    assert not given.notices
    assert not given.counts.missing
    assert 0 < given.counts.resampled < given.counts.rounds
    assert given.tokens == expected(plan, trace, places)
    assert len(given.tokens) == plan.max_tokens


@pytest.mark.slow
async def test_a_worker_of_another_tokenizer_is_refused(
    workers: list[CloudProcess], draft: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft, "tokenizer_fingerprint", "another")
    with pytest.raises(DragonError, match=r"worker 127.0.0.1:\d+: .*tokenizer"):
        await answer(addresses(workers), draft, PLAN, Path(os.devnull))


@pytest.mark.slow
async def test_killing_a_worker_in_mid_answer_costs_no_token(
    workers: list[CloudProcess], draft: LanguageModel, tmp_path: Path
) -> None:
    """The last test of this module: the worker stays dead."""
    trace, places = tmp_path / "trace.jsonl", addresses(workers)
    shown: list[int] = []

    def show(token: int) -> None:
        shown.append(token)
        if len(shown) == 6:
            os.kill(workers[0].pid, signal.SIGKILL)

    given = await answer(places, draft, PLAN, trace, show)
    assert given.tokens == shown == expected(PLAN, trace, places)
    assert len(shown) == PLAN.max_tokens
    assert set(given.counts.missing) == {places[0].name}
    assert len(given.notices) == 1
    assert places[0].name in given.notices[0]
    lines: list[str] = []
    given = await answer(places, draft, PLAN, trace, on_notice=lines.append)
    assert given.tokens == expected(PLAN, trace, places)
    assert given.counts.missing == {places[0].name: given.counts.rounds}
    assert [places[0].name in line for line in lines] == [True]
    with pytest.raises(DragonError, match="cannot reach"):
        await answer(places, draft, replace(PLAN, require_all=True), trace)
