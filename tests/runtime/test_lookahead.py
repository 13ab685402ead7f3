"""How far a side drafts ahead, and along which line: pure, without a generation around it."""

from dataclasses import replace

from dragonrt.runtime.draft import Draft, Line, start_hash
from dragonrt.runtime.lookahead import BLOCK, Lookahead
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.queues import DraftQueue
from dragonrt.runtime.scheduler import Placement
from dragonrt.sampling.samplers import Sampler

PLAN = Plan(0, Sampler(), max_tokens=40, run_ahead=12, stop_tokens=(9,))


def lookahead(plan: Plan = PLAN, trusts_other: bool = True) -> Lookahead:
    queues = DraftQueue(plan.window), DraftQueue(plan.window)
    target = lambda step, own, theirs: own.token + theirs.token  # noqa: E731
    return Lookahead(plan, Line(start_hash(0)), *queues, target, lambda: trusts_other)


def put(queue: DraftQueue, tokens: list[int]) -> None:
    """Drafts of a side that goes along its own tokens."""
    line = Line(start_hash(0))
    for step, token in enumerate(tokens):
        queue.put(Draft(step, line.hash, token, b"", 0.0, 0.0))
        line.append(token)


def test_the_line_goes_along_the_own_drafts_and_their_successor_is_predicted() -> None:
    ahead = lookahead()
    assert ahead.unpredicted(0) == (0, 0)
    put(ahead.own, [1, 2, 3])
    ahead.extend(0)
    assert ahead.line.tokens == [1, 2, 3]
    assert ahead.unpredicted(0) == (3, 3)


def test_a_trusted_side_is_followed_and_its_line_predicted_in_blocks() -> None:
    for trusts_other, length in ((True, 11), (False, 0)):
        ahead = lookahead(trusts_other=trusts_other)
        put(ahead.theirs, [1] * 11)
        ahead.extend(0)
        assert len(ahead.line) == length
    ahead = lookahead()
    put(ahead.theirs, [1] * 11)
    ahead.extend(0)
    assert ahead.unpredicted(0) == (0, BLOCK - 1)
    for plan in (replace(PLAN, follow=False), replace(PLAN, placement=Placement.SYNC)):
        alone = lookahead(plan)
        put(alone.theirs, [1] * 11)
        alone.extend(0)
        assert len(alone.line) == 0


def test_where_both_drafts_are_at_hand_the_target_is_known() -> None:
    ahead = lookahead()
    put(ahead.own, [1])
    put(ahead.theirs, [2])
    ahead.extend(0)
    assert ahead.line.tokens == [3]


def test_the_run_ahead_the_longest_answer_and_its_end_bound_the_line() -> None:
    ahead = lookahead()
    assert [ahead.limit(decided) for decided in (0, 5, 39)] == [11, 16, 39]
    assert lookahead(replace(PLAN, placement=Placement.SYNC)).limit(5) == 5
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
