"""The tree of likely texts: its leaves best first, and what is known of it."""

import pytest

from dragonrt.modes.dragon.branches import Branches
from dragonrt.modes.dragon.decision import Decision
from dragonrt.modes.dragon.drafts import PREFIXES_PER_STEP, Drafts, SideDraft
from dragonrt.modes.dragon.terms import Terms
from dragonrt.modes.mode import Span
from dragonrt.modes.prefix import TokenPrefix
from dragonrt.modes.question import Question
from dragonrt.modes.registry import Resources
from dragonrt.modes.settings import DragonSettings

STOP = 9
DECIDED = [4]


def draft(text: list[int], token: int, *others: tuple[int, float]) -> SideDraft:
    return SideDraft(len(text), TokenPrefix(1, text).hash, token, b"", 0.0, 0.0, others=others)


class Known(Decision):
    """Knows the target of every step whose drafts are at hand, or of none."""

    known: int | None = None

    def target(self, own: SideDraft, theirs: SideDraft) -> int | None:
        return self.known


def leaves(
    own: list[SideDraft],
    theirs: list[SideDraft] | None = None,
    target: int | None = None,
    count: int = 7,
    longest: int = 9,
    taken: list[int] | None = None,
) -> list[list[int]]:
    """The texts of the leaves, where a forward reads the prefix `taken`."""
    state = Drafts.after(1, DECIDED, 20)
    for queue, drafts in ((state.own, own), (state.theirs, theirs or [])):
        for each in drafts:
            queue.put(each)
    settings = DragonSettings(branches=str(count))
    question = Question(stop_tokens=(STOP,))
    terms = Terms("device", question, settings, Resources(vocabulary=64))
    decision = Known(terms)
    decision.known = target
    text = TokenPrefix(1, taken or [8, 8])
    found = Branches(terms, state, decision).work(Span.of(text, len(text), len(text)), longest)
    for span in found:
        assert (span.count, span.hashes) == (1, TokenPrefix(1, span.tokens).hashes)
    return [span.tokens for span in found]


OWN = [draft([4], 1, (2, 0.5), (3, 0.1)), draft([4, 1], 5, (6, 0.9))]
MANY = draft([4], 1, *((10 + each, 0.9) for each in range(3 * PREFIXES_PER_STEP)))


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"own": OWN}, [[4, 1, 5], [4, 1, 6], [4, 2], [4, 3]]),
        ({"own": OWN, "count": 2}, [[4, 1, 5], [4, 1, 6]]),
        ({"own": OWN, "taken": [4, 1, 5]}, [[4, 1, 6], [4, 2], [4, 3]]),
        ({"own": OWN, "longest": 2}, [[4, 2], [4, 3]]),  # no text is longer than it may be
        # Where both drafts are at hand the target is known, if finding it is quick.
        ({"own": OWN[:1], "theirs": [draft([4], 2)], "target": 7}, [[4, 7]]),
        ({"own": OWN[:1], "theirs": [draft([4], 2)]}, [[4, 1], [4, 2], [4, 3]]),
        # Neither behind the end of an answer, nor where it hardly goes.
        ({"own": [draft([4], 1, (STOP, 0.9), (3, 1e-3))]}, [[4, 1]]),
        ({"own": []}, [DECIDED]),
    ],
)
def test_the_likeliest_leaves_come_first(fields: dict, texts: list[list[int]]) -> None:  # type: ignore[type-arg]
    assert leaves(**fields) == texts


def test_no_step_is_crowded_so_that_a_draft_is_pushed_out() -> None:
    full = [draft([4, 10 + each], 2) for each in range(PREFIXES_PER_STEP // 2)]
    assert leaves([MANY])[0] == [4, 1]
    assert leaves([MANY, *full], longest=2) == []
