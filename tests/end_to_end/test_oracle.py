"""The oracle for real: two processes, and no link, aggregator or latency changes a token."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.bundled import questions
from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.answer import Answer
from dragonrt.service.cloud_process import CloudProcess, cloud_process
from tests.tiny_models import saved, tiny, written_file

from .conftest import BOTH, SHORT, DeviceAt, connected_device, counts, slow_link

WAYS: dict[str, list[Aggregator]] = {
    "coupled": list(Aggregator),
    "algorithm1": [each for each in Aggregator if each is not Aggregator.BOTH],
}
TEMPERATURES = (0.0, 0.8, 3.0)  # at 3 the text wanders, and most drafts are rejected


def asked_at(temperature: float, seed: int) -> Question:
    """At each level of the same documents, however little they have to do with the question.

    Where they weigh alike, a text of temperature 3 has so many words of the device's documents that
    level `answer` ends it for steering. So the best document leads here.
    """
    sampler = Sampler(temperature=temperature)
    return replace(
        SHORT, seed=seed, sampler=sampler, relevance_floor=-1.0, relevance_temperature=0.05
    )


@pytest.mark.slow
async def test_every_way_over_every_link_gives_one_text(
    cloud: CloudProcess, device_at: DeviceAt
) -> None:
    port = cloud.wait_ready()
    texts: dict[tuple[str, Question, str], list[int]] = {}
    asked = [(questions()[n].text, n) for n in range(2)]

    def check(prompt: str, question: Question, how: DragonSettings, reply: Answer) -> None:
        assert counts(reply).alone_from is None, reply.decoded.notices
        assert counts(reply).divergences == 0
        key = (prompt, question, how.rule)
        assert reply.decoded.tokens == texts.setdefault(key, reply.decoded.tokens), (key, how)

    async with device_at(port) as near, device_at(port, emulate=slow_link(0.05, 0.03)) as far:
        for (prompt, seed), temperature in itertools.product(asked, TEMPERATURES):
            question = asked_at(temperature, seed)
            for rule, ways in WAYS.items():
                keeps = replace(BOTH, rule=rule, disclose=Disclosure.ANSWER)
                check(prompt, question, keeps, await near.ask(prompt, question, keeps))
                for aggregator in ways:
                    how = replace(BOTH, rule=rule, aggregator=aggregator)
                    check(prompt, question, how, await near.ask(prompt, question, how))
                    if aggregator is not Aggregator.SYNC and temperature == TEMPERATURES[2 * seed]:
                        check(prompt, question, how, await far.ask(prompt, question, how))
    # The noise decides: were the text always the same, the test would show little.
    hot = [tuple(tokens) for (_, each, _), tokens in texts.items() if each.sampler.temperature > 1]
    assert len(set(hot)) == len(hot)


SIZES = {"vocab_size": 258, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
"""Rows of whole blocks of 32; as many tokens as the tokenizer has."""


@pytest.mark.slow
async def test_a_directory_and_a_file_answer_together(tmp_path: Path) -> None:
    directory, file = saved(tiny("llama", **SIZES), tmp_path / "model"), tmp_path / "model.gguf"
    written_file(directory, file)
    model = LanguageModel.load(directory, "cpu", "float32")
    with cloud_process(model=str(file)) as cloud:
        async with connected_device(model, None, cloud.wait_ready(), BOTH) as device:
            reply = await device.ask("When?", Question(max_tokens=12, stop_tokens=()))
    assert len(reply.decoded.tokens) == 12
    assert counts(reply).divergences == 0
