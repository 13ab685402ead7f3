"""How many rows a context has, and how it grows."""

import pytest

from dragonrt import bundled
from dragonrt.backends.backend import Feed, Preemption
from dragonrt.backends.llama_cpp.backend import load_model
from dragonrt.errors import ModelError
from dragonrt.wire.reasons import BusyError


def test_more_rows_than_tokens_of_a_forward_are_read_until_there_are_too_many() -> None:
    on = load_model(bundled.model_path("dragon-draft"), threads=1)
    opened = [on.open([on.empty()] * 60, 20) for _ in range(4)]
    feeds = [Feed(rows, [5, 6], 0, True, Preemption(), False) for rows in opened]
    found = on.forward(feeds)
    assert [len(each or ()) for each in found] == [2] * 4
    with pytest.raises(BusyError):
        on.open([on.empty()] * 60, 20)
    opened.pop()
    del feeds, found
    on.open([on.empty()] * 60, 20)
    with pytest.raises(ModelError):
        on.open([on.empty()] * 300, 20)
