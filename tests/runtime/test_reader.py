"""The KV cache of one answer on a real model."""

import numpy as np
import pytest

from dragonrt.language.model import LanguageModel
from dragonrt.language.preemption import Preemption
from dragonrt.runtime import reader
from dragonrt.runtime.draft import Line, start_hash
from dragonrt.runtime.reader import Reader, Reading, Weighing

SEED = 5
ANSWER = "Press the green button twice, wait for the light and open the left drawer."


def fresh(model: LanguageModel) -> Reader:
    sequence = model.sequence([model.document_kv(())] * 2, capacity=64)
    prompt = model.encode("What do I do?")
    log_probabilities, hidden = sequence.extend_hidden(prompt, every=False)
    said = Reading(log_probabilities[:, -1], hidden[:, -1])
    return Reader(sequence, said, Weighing(np.zeros(2)), SEED, in_blocks=True)


@pytest.mark.slow
def test_a_resumed_answer_gives_no_more_predictions_than_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = LanguageModel.load("dragon-small")
    line = Line(start_hash(SEED), model.encode(ANSWER))
    first = len(line) - 2
    together = fresh(model).read(line.tokens, line.hashes, first, Preemption())

    monkeypatch.setattr(reader, "LONGEST_RUN", 4)
    resumed = fresh(model)
    made: list[int] = []
    extend = resumed._sequence.extend_hidden

    def counted(*arguments: object, **fields: object) -> object:
        rows, hidden = extend(*arguments, **fields)  # type: ignore[arg-type]
        made.append(rows.shape[1])
        return rows, hidden

    monkeypatch.setattr(resumed._sequence, "extend_hidden", counted)
    apart = resumed.read(line.tokens, line.hashes, first, Preemption())
    assert made == [1, 3]
    assert len(apart) == len(together) == 3
    for one, other in zip(apart, together, strict=True):
        assert np.allclose(one.log_probabilities, other.log_probabilities, atol=1e-4)
        assert np.allclose(one.hidden, other.hidden, atol=1e-4)
    again = resumed.read(line.tokens, line.hashes, first, Preemption())
    assert made == [1, 3, 3]  # nothing of the answer is fed twice
    assert np.allclose(again[0].hidden, together[0].hidden, atol=1e-4)
