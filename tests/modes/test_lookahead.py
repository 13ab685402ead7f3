"""How far a side drafts ahead, and along which line: pure, without a mode around it."""

from typing import Any

from dragonrt.modes.drafts import DraftQueue, SideDraft
from dragonrt.modes.lookahead import BLOCK, Lookahead
from dragonrt.modes.prefix import TokenPrefix, start_hash


def lookahead(theirs: DraftQueue | None = None, **fields: Any) -> Lookahead:
    """Of an answer of at most 40 tokens that token 9 ends."""
    given: dict[str, Any] = {
        "run_ahead": 12,
        "max_tokens": 40,
        "stop_tokens": (9,),
        "follows": True,
        "line": TokenPrefix(start_hash(0)),
        "own": DraftQueue(25),
        "target": lambda step, own, theirs: own.token + theirs.token,
        "trusts_other": lambda: True,
    }
    line, queue = fields.get("line", given["line"]), theirs or DraftQueue(25)
    given["their_draft"] = lambda step: queue.get(step, line.hashes[step])
    return Lookahead(**{**given, **fields})


def put(queue: DraftQueue, tokens: list[int]) -> None:
    """Drafts of a side that goes along its own tokens."""
    line = TokenPrefix(start_hash(0))
    for step, token in enumerate(tokens):
        queue.put(SideDraft(step, line.hash, token, b"", 0.0, 0.0))
        line.append(token)


def queue(tokens: list[int]) -> DraftQueue:
    """Drafts of consecutive steps."""
    drafts = DraftQueue(25)
    put(drafts, tokens)
    return drafts


def test_the_line_goes_along_the_own_drafts_and_their_successor_is_predicted() -> None:
    ahead = lookahead()
    assert ahead.unpredicted(0) == (0, 0)
    put(ahead.own, [1, 2, 3])
    ahead.extend(0)
    assert ahead.line.tokens == [1, 2, 3]
    assert ahead.unpredicted(0) == (3, 3)


def test_a_trusted_side_is_followed_and_its_line_predicted_in_blocks() -> None:
    for fields, length in (
        ({}, 11),
        ({"trusts_other": lambda: False}, 0),
        ({"follows": False}, 0),
    ):
        ahead = lookahead(queue([1] * 11), **fields)
        ahead.extend(0)
        assert len(ahead.line) == length
    ahead = lookahead(queue([1] * 11))
    ahead.extend(0)
    assert ahead.unpredicted(0) == (0, BLOCK - 1)


def test_what_is_missing_before_a_draft_at_hand_is_predicted() -> None:
    line = TokenPrefix(start_hash(0), [1])
    ahead = lookahead(queue([1, 2, 3]), line=line, target=lambda step, own, theirs: own.token)
    put(ahead.own, [1, 2, 3])
    ahead.own.keep(
        TokenPrefix(start_hash(0), [1, 2]).hashes[2:]
    )  # the branch without what it grew from
    ahead.extend(1)
    assert line.tokens == [1, 2, 3]
    assert ahead.unpredicted(1) == (1, 3)


def test_where_both_drafts_are_at_hand_the_target_is_known() -> None:
    ahead = lookahead(queue([2]))
    put(ahead.own, [1])
    ahead.extend(0)
    assert ahead.line.tokens == [3]
    # Finding it takes too long.
    heavy = lookahead(queue([2]), target=lambda step, own, theirs: None)
    put(heavy.own, [1])
    heavy.extend(0)
    assert heavy.line.tokens == [1]


def test_the_run_ahead_the_longest_answer_and_its_end_bound_the_line() -> None:
    ahead = lookahead()
    assert [ahead.limit(decided) for decided in (0, 5, 39)] == [11, 16, 39]
    assert lookahead(run_ahead=1).limit(5) == 5
    put(ahead.own, [1] * 20)
    ahead.extend(0)
    assert len(ahead.line) == 12
    assert ahead.unpredicted(0) is None
    stopped = lookahead()
    put(stopped.own, [1, 9, 2])
    stopped.extend(0)
    assert stopped.line.tokens == [1, 9]
    assert stopped.unpredicted(0) is None


def test_a_block_is_walked_as_far_as_the_line_goes_its_way() -> None:
    ahead = lookahead()
    assert ahead.step_to(1, 4, 0)
    assert ahead.line.tokens == [4]
    assert not ahead.step_to(1, 5, 0)
    assert not ahead.step_to(12, 4, 0)
