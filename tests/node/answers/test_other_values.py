"""What documents hold in place of a number of the answer."""

from typing import Any

import pytest

from dragonrt.modes.mode import Span, Work
from dragonrt.modes.prefix import extended
from dragonrt.node.answers.citing import disagreements, storable
from dragonrt.node.answers.model_session import ModelSession
from dragonrt.node.model_thread import JobThread, ModelThread
from dragonrt.wire.fields import MAX_CODE, MAX_MISSING
from tests.copying_model import AGREEMENT, START, Copying, cache, numbered
from tests.node.virtual import outcome


@pytest.mark.parametrize(
    ("text", "documents", "bare", "expected"),
    [
        ("9|,|9|9|0| pounds", ["1|,|2|4|0| pounds"], False, ("9,990", "1,240")),
        ("1|4| March| |2|0|2|1", ["2|7| May| |2|0|1|9"], False, ("14 March 2021", "27 May 2019")),
        ("3| hours| |2|0", 2 * ["4| hours| |5|0"], False, ("3 hours 20", "4 hours 50")),
        ("1|,|2|4|0| pounds", ["1|,|2|4|0| pounds"], False, ()),
        ("1|,|2|4|0", ["1|,|2|4|0", "9|,|9|9|0"], False, ()),  # one of its documents agrees
        ("1|,|2|4|0", ["9|,|9|9|0", "1|,|2|4|0"], True, ("1,240", "9,990")),
        (" Ire|ne| Kim", [" Iv|an| Kow|al"], False, ()),  # a number alone is compared
        ("2|0", [" Ire|ne| Kim"], False, ()),
    ],
)
async def test_each_number_that_no_document_agrees_with_has_theirs(
    text: str, documents: list[str], bare: bool, expected: tuple[str, ...]
) -> None:
    tokens, backend = [*numbered(text), 0], Copying()
    model: Any = backend
    async with JobThread("beside") as beside, ModelThread(model, beside) as thread:
        read = cache(*documents, bare=bare, backend=backend)
        await thread.read(read.prefill)
        session = ModelSession(thread, read, START)
        span = Span(tokens[:-1], extended([START], tokens[:-1]), 0)
        await outcome(session, Work(len, span))
        assert await session.other_values(tokens, AGREEMENT) == expected
        session.close()
        assert await session.other_values(tokens, AGREEMENT) == ()


def test_what_no_message_can_hold_is_left_out() -> None:
    assert storable(("1", "2", "3", "4\n", "5", "6" * (MAX_CODE + 1))) == ("1", "2")
    assert len(storable(("1", "2") * MAX_MISSING)) == MAX_MISSING


@pytest.mark.parametrize(
    ("weight", "whose"),
    [(None, {"own", "other"}), (0.5, {"own", "other"}), (0.04, {"other"}), (0.96, {"own"})],
)
def test_documents_about_other_things_are_not_heard(weight: float | None, whose: set[str]) -> None:
    lines = disagreements(("1", "own"), {"cloud": ("1", "other")}, weight)
    assert {line.rsplit(" ", 1)[1] for line in lines} == whose
