"""The tree of likely texts: its leaves best first, and what is known of it."""

import numpy as np

from dragonrt.modes.branches import Branches
from dragonrt.modes.drafts import LINES_PER_STEP, DraftQueue, SideDraft
from dragonrt.modes.mode import Span
from dragonrt.modes.prefix import TokenPrefix, start_hash

STOP = 9
DECIDED = [4]


def draft(text: list[int], token: int, *others: tuple[int, float]) -> SideDraft:
    prefix = TokenPrefix(start_hash(1), text).hash
    return SideDraft(len(text), prefix, token, b"", 0.0, 0.0, others=others)


def tree(own: list[SideDraft], theirs: list[SideDraft], target: int | None = None) -> Branches:
    queues = DraftQueue(20), DraftQueue(20)
    for queue, drafts in zip(queues, (own, theirs), strict=True):
        for each in drafts:
            queue.put(each)
    return Branches((STOP,), *queues, lambda step, own, theirs: target)


def leaves(branches: Branches, count: int = 9, last: int = 9, *taken: list[int]) -> list[list[int]]:
    line = TokenPrefix(start_hash(1), DECIDED)
    hashes = [TokenPrefix(start_hash(1), text).hash for text in taken]
    found = branches.leaves(DECIDED, line.hashes, last, count, hashes)
    for span in found:
        assert isinstance(span, Span)
        assert span.count == 1
        assert span.hashes == TokenPrefix(start_hash(1), span.tokens).hashes
    return [span.tokens for span in found]


def test_the_likeliest_leaves_come_first_and_no_more_than_are_wanted() -> None:
    own = [draft([4], 1, (2, 0.5), (3, 0.1)), draft([4, 1], 5, (6, 0.9))]
    branches = tree(own, [])
    assert leaves(branches) == [[4, 1, 5], [4, 1, 6], [4, 2], [4, 3]]
    assert leaves(branches, 2) == [[4, 1, 5], [4, 1, 6]]
    assert leaves(branches, 9, 9, [4, 1, 5]) == [[4, 1, 6], [4, 2], [4, 3]]
    assert leaves(branches, 9, 2) == [[4, 2], [4, 3]], "no text is longer than it may be"


def test_where_both_drafts_are_at_hand_the_target_is_known() -> None:
    own = [draft([4], 1, (2, 0.5))]
    assert leaves(tree(own, [draft([4], 2)], target=7)) == [[4, 7]]
    assert leaves(tree(own, [draft([4], 2)], target=None)) == [[4, 1], [4, 2]]


def test_an_answer_does_not_go_on_behind_its_end_nor_where_it_hardly_goes() -> None:
    assert leaves(tree([draft([4], 1, (STOP, 0.9), (3, 1e-3))], [])) == [[4, 1]]


def test_nothing_known_is_the_decided_text_itself() -> None:
    assert leaves(tree([], [])) == [DECIDED]


def test_no_step_is_crowded_so_that_a_draft_is_pushed_out() -> None:
    many = tuple((10 + each, 0.9) for each in range(3 * LINES_PER_STEP))
    first = draft([4], 1, *many)
    own = [first, *(draft([4, token], 2) for token, _ in many[: LINES_PER_STEP // 2])]
    assert leaves(tree([first], []), 40)[0] == [4, 1]
    assert leaves(tree(own, []), 40, 2) == []
    assert np.isclose(sum(p for _, p in tree(own, [])._following(1, first)), 0.97)
