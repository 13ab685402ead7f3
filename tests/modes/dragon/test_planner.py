"""Which forward a side computes next, along which prefix, and the drafts that it gives."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.decision import Decision
from dragonrt.modes.dragon.drafts import DraftQueue, Drafts
from dragonrt.modes.dragon.planner import BLOCK, DraftPostprocess, Planner
from dragonrt.modes.dragon.settings import DragonResources, DragonSettings, DragonSetup
from dragonrt.modes.mode import Prepared, Span
from dragonrt.modes.prefix import TokenPrefix, extended, start_hash
from dragonrt.modes.question import Question
from dragonrt.privacy.evidence import SideDraft
from dragonrt.testing.scripted import SimulatedPrediction

V = 64
STOP = 9


class Sum(Decision):
    """A target that neither side drafted; None where finding it takes too long."""

    quick = True

    @override
    def target(self, own: SideDraft, theirs: SideDraft) -> int | None:
        return own.token + theirs.token if self.quick else None


def put(queue: DraftQueue, tokens: Sequence[int]) -> None:
    """Drafts of a side that goes along its own tokens."""
    hashes = TokenPrefix(start_hash(0), tokens).hashes
    for step, token in enumerate(tokens):
        queue.put(SideDraft(step, hashes[step], token, b"", 0.0, 0.0))


def planner(
    own: Sequence[int] = (),
    theirs: Sequence[int] = (),
    decided: Sequence[int] = (),
    *,
    trusts: bool = True,
    quick: bool = True,
    **settings: Any,
) -> tuple[Planner, Drafts]:
    """Of an answer of at most 40 tokens that token 9 ends, with these drafts at hand."""
    drafts = Drafts(start_hash(0), decided, 25)
    put(drafts.own, own)
    put(drafts.theirs, theirs)
    setup = DragonSetup(
        "device",
        Question(max_tokens=40, stop_tokens=(STOP,)),
        DragonSettings(**{"run_ahead": 12, **settings}),
        DragonResources(vocabulary=V),
    )
    decision = Sum(setup)
    decision.quick = quick
    decision.compared(not trusts, trusts)
    return Planner(setup, drafts, decision), drafts


@pytest.mark.parametrize(
    ("given", "tokens", "span"),
    [
        ({}, [], (0, 0)),
        ({"own": [1, 2, 3]}, [1, 2, 3], (3, 3)),
        # A trusted side is followed, in blocks.
        ({"theirs": [1] * 11}, [1] * 11, (0, BLOCK - 1)),
        ({"theirs": [1] * 11, "trusts": False}, [], (0, 0)),
        ({"theirs": [1] * 11, "follow": False}, [], (0, 0)),
        ({"theirs": [1] * 11, "aggregator": Aggregator.SYNC}, [], (0, 0)),
        # Where both drafts are at hand the target is known, if finding it is quick.
        ({"own": [1], "theirs": [2]}, [3], (1, 1)),
        ({"own": [1], "theirs": [2], "quick": False}, [1], (1, 1)),
        # The run-ahead and the end of the answer bound what is drafted.
        ({"own": [1] * 20}, [1] * 12, None),
        ({"own": [1, STOP, 2]}, [1, STOP], None),
    ],
)
def test_the_prefix_follows_the_drafts_and_extends_them(
    given: dict[str, Any], tokens: list[int], span: tuple[int, int] | None
) -> None:
    plans, drafts = planner(**given)
    work = plans.wanted()
    assert drafts.prefix.tokens == tokens
    read = None if work is None or work.span is None else work.span
    assert (None if read is None else (read.first, len(read.tokens))) == span


def test_run_ahead_and_answer_bound_the_longest_prefix() -> None:
    for decided, limit in ((0, 11), (5, 16), (39, 39)):
        assert planner(decided=[1] * decided)[0].limit == limit
    assert planner(decided=[1] * 5, aggregator=Aggregator.SYNC)[0].limit == 5


def test_what_is_missing_before_a_draft_at_hand_is_drafted() -> None:
    plans, drafts = planner([1, 2, 3], [1, 2, 3], [1], quick=False)
    drafts.own.keep(TokenPrefix(start_hash(0), [1, 2]).hashes[2:])  # without what it grew from
    plans.extend()
    assert drafts.prefix.tokens == [1, 2, 3]
    assert plans.next_steps() == (1, 3)


def sure_of(token: int) -> SimulatedPrediction:
    p: NDArray[np.float32] = np.full(V, 0.01, np.float32)
    p[token] = 1.0
    return SimulatedPrediction(p, 0.0, np.zeros(1, np.float32))


def postprocess(span: Span, guess: list[int]) -> DraftPostprocess:
    setup = DragonSetup("device", Question(seed=1), DragonSettings(), DragonResources(vocabulary=V))
    return DraftPostprocess(setup, span, guess, ())


def test_drafts_end_where_a_guess_is_wrong() -> None:
    """What is behind it was read after another text than the side drafts along."""
    prefix = TokenPrefix(7, [1, 2])
    guess = [3, 4, 5]
    for said, right in (([2, 3, 4, 5, 6], 3), ([2, 3, 6, 5, 6], 1), ([2, 6, 4, 5, 6], 0)):
        made = postprocess(Span.of(prefix, 1, 2), guess)([sure_of(token) for token in said])
        kept = [(draft.step, draft.prefix_hash, draft.token) for draft in made]
        hashes = extended(prefix.hashes, guess)
        assert kept == [(n, hashes[n], said[n - 1]) for n in range(1, 3 + right)]


def test_what_is_looked_up_is_guessed() -> None:
    plans, _ = planner(decided=[4, 5])
    plans.prepared(Prepared(texts=([4, 5, 7, 1], [1]), files=(0, 1)))
    work = plans.wanted()
    assert work is not None
    assert work.guess == [7]
