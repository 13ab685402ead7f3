"""Two sides that draft and decide alike: turn about by hand, and one side against a script."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dragonrt.control.scheduler import Aggregator, DecodeProfile
from dragonrt.distributions import CodecError, Step, codec
from dragonrt.modes.dragon import DragonMode, decision
from dragonrt.modes.dragon.drafts import Coefficients, Draft
from dragonrt.modes.dragon.machine import Dragon
from dragonrt.modes.dragon.settings import DragonResources, DragonSettings
from dragonrt.modes.messages import Target
from dragonrt.modes.mode import (
    Computed,
    Effects,
    Joined,
    Left,
    Measured,
    ModeError,
    Preempted,
    Prepared,
    Received,
    Work,
)
from dragonrt.modes.prefix import LOW_BITS, TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side, other
from dragonrt.testing.scripted import Script, ScriptedModel, SimulatedModel, predictions_of
from dragonrt.traces import events
from dragonrt.wire.reasons import End, Reason
from scripts.campaign.interleaving import Interleaving
from scripts.campaign.scenario import Request
from tests.contract.scenes import STEADY, scene
from tests.modes.machines import of, wanted
from tests.oracles import oracle
from tests.oracles.dragon import redacted_oracle

V = 32
SCRIPT = Script(5, vocabulary=V, loses=True)
MODELS: dict[str, SimulatedModel] = {
    "device": ScriptedModel("device", SCRIPT),
    "cloud": ScriptedModel("cloud", SCRIPT),
}
QUESTION = Question(seed=7, sampler=Sampler(0.8), max_tokens=20, stop_tokens=(0,), reweight_every=1)
SETTINGS = DragonSettings(codec="topp:0.95", run_ahead=4)
HEAVY = replace(SETTINGS, codec="dense:fp32")
REDACTED = replace(SETTINGS, disclose=Disclosure.REDACTED, withhold=1.5, codec="topk:8:residual")
MARKER = (3, 4)
GONE = End(Reason.LOST, "gone")
EMPTY = TokenPrefix(start_hash(7))


def do(mode: Dragon, work: Work, now: float = 0.0) -> Effects:
    return mode.handle(
        Computed(work, work.postprocess(predictions_of(MODELS[mode.side], work)), 0.01), now
    )


def machine(
    side: Side, question: Question = QUESTION, settings: DragonSettings = SETTINGS, **own: Any
) -> Dragon:
    resources = DragonResources(vocabulary=V, marker=MARKER, **own)
    make = DragonMode().device if side == "device" else DragonMode().cloud
    return make(question, settings, resources)


def joined(
    side: Side = "device",
    settings: DragonSettings = SETTINGS,
    question: Question = QUESTION,
    texts: tuple[tuple[int, ...], ...] = (),
) -> Dragon:
    """With the other side as session 8, at 0 s."""
    mode = machine(side, question, settings)
    mode.handle(Joined(other(side), 8), 0.0)
    mode.handle(Prepared(texts=texts), 0.0)
    return mode


def left(settings: DragonSettings = SETTINGS, steps: int = 0, **more: Any) -> Dragon:
    """A device whose cloud is gone for good, with so many forwards done behind that."""
    mode = joined(settings=settings, **more)
    mode.handle(Left("cloud", GONE, False), 0.0)
    for _ in range(steps):
        do(mode, wanted(mode))
    return mode


def their_draft(
    side: Side, text: TokenPrefix, step: int, settings: DragonSettings = SETTINGS, **fields: Any
) -> Draft:
    """What the other side of `side` says after the first `step` tokens, of which it knows all."""
    mode = joined(other(side), settings, replace(QUESTION, accepted=tuple(text.tokens[:step])))
    message = drafts_of(do(mode, wanted(mode)))[0]
    return structs.replace(message, **fields)


def drafts_of(effects: Effects) -> list[Draft]:
    return [each for _, each in effects.send if isinstance(each, Draft)]


def mixed(mode: Dragon) -> Work:
    """The computation that it wants of two drafts."""
    return next(work for work in iter(mode.wanted, None) if work.span is None)


# Both sides.


@pytest.mark.parametrize(
    ("rule", "aggregator", "level"),
    [
        *(("coupled", each, Disclosure.DRAFTS) for each in Aggregator),
        *(("algorithm1", each, Disclosure.DRAFTS) for each in Aggregator if each.value != "both"),
        *(("coupled", each, Disclosure.ANSWER) for each in (Aggregator.BOTH, Aggregator.SYNC)),
        *(("coupled", each, Disclosure.REDACTED) for each in (Aggregator.BOTH, Aggregator.SYNC)),
        ("algorithm1", Aggregator.DEVICE, Disclosure.ANSWER),
    ],
)
@pytest.mark.parametrize("limit", ["", "LIGHT_BYTES", "MIXED_AT_ONCE"])
def test_both_sides_decide_the_oracles_text_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    aggregator: Aggregator,
    limit: str,
    level: Disclosure,
) -> None:
    """Whether postprocessing mixes nothing, everything, or what more than one input may lead to."""
    if limit:
        monkeypatch.setattr(decision, limit, -1)
    settings = REDACTED if level is Disclosure.REDACTED else SETTINGS
    settings = replace(settings, rule=rule, aggregator=aggregator, disclose=level)
    for seed in range(6):
        asked = Request(replace(QUESTION, seed=seed), replace(settings, run_ahead=1 + seed), SCRIPT)
        Interleaving(scene(asked, replace(STEADY, seed=seed), documents=True), asked).run()


def test_some_tokens_of_a_redacted_answer_are_withheld() -> None:
    asked = [replace(QUESTION, seed=seed) for seed in range(6)]
    texts = [redacted_oracle(question, REDACTED, MODELS, MARKER) for question in asked]
    assert 20 < sum(withheld for text in texts for _, withheld in text) < 100


def test_following_documents_saves_forwards_not_tokens() -> None:
    found: list[tuple[list[int], int]] = []
    for known in (False, True):
        mode = left(texts=(tuple(found[0][0]),) if known else ())
        forwards = 0
        while (work := mode.wanted()) is not None:
            do(mode, work)
            forwards += 1
        found.append((list(mode.decided), forwards))
    (alone, forwards), (again, fewer) = found
    assert again == alone
    assert fewer < forwards == len(alone)


# One side: drafting.


def test_a_side_drafts_up_to_its_bound_and_sends_what_it_drafts() -> None:
    mode = joined()
    sent: list[Draft] = []
    while (work := mode.wanted()) is not None:
        assert mode.wanted() is None, "one forward at a time"
        sent += drafts_of(do(mode, work))
    assert [draft.step for draft in sent] == [0, 1, 2, 3]
    line = TokenPrefix(start_hash(7))
    for draft in sent:
        assert (draft.session, draft.prefix_hash, draft.ahead) == (8, line.hash, draft.step)
        assert draft.decided_hash == start_hash(7) & LOW_BITS
        line.append(draft.token)
    sync = joined(settings=replace(SETTINGS, aggregator=Aggregator.SYNC))
    do(sync, wanted(sync))
    assert sync.wanted() is None


def test_what_is_wanted_next_is_known_before_the_outcome_is() -> None:
    mode = joined()
    work = wanted(mode)
    result = work.postprocess(predictions_of(MODELS["device"], work))
    assert work.following is not None
    following = work.following(result)
    assert following is not None
    assert following.span is not None
    mode.handle(Computed(work, result, 0.01), 0.0)
    then = wanted(mode)
    assert then.span is not None
    assert (then.span.tokens, then.span.hashes) == (following.span.tokens, following.span.hashes)
    last = joined(question=replace(QUESTION, accepted=(5,) * 19))
    work = wanted(last)
    assert work.following is not None
    assert work.following(work.postprocess(predictions_of(MODELS["device"], work))) is None


def test_a_forward_of_a_dead_line_is_stopped_and_gives_nothing() -> None:
    mode = joined(settings=replace(SETTINGS, aggregator=Aggregator.CLOUD))
    (drafted,) = [each.token for each in drafts_of(do(mode, wanted(mode)))]
    work = wanted(mode)
    token = (drafted + 1) % V or 1
    effects = mode.handle(Received("cloud", Target(8, 0, start_hash(7), token, "cloud")), 1.0)
    assert effects.preempt
    assert of(effects, events.RolledBack) == [events.RolledBack(0, 1)]
    assert of(effects, events.ForwardPreempted) == [events.ForwardPreempted(1)]
    late = do(mode, work)
    assert (late.send, of(late, events.Drafted)) == ([], [])
    again = wanted(mode)
    assert again.span is not None
    assert again.span.tokens == [token]
    stopped = mode.handle(Preempted(again, 0.004), 0.0)
    assert of(stopped, events.ForwardStopped) == [events.ForwardStopped(1, 0.004)]


# One side: deciding.


def test_a_step_is_decided_as_soon_as_both_drafts_are_there() -> None:
    for own_first in (True, False):
        mode = joined()
        theirs = their_draft("device", EMPTY, 0)
        if own_first:
            do(mode, wanted(mode), 1.0)
            effects = mode.handle(Received("cloud", theirs), 1.5)
        else:
            mode.handle(Received("cloud", theirs), 1.0)
            effects = do(mode, wanted(mode), 1.5)
        (decided,) = of(effects, events.TokenDecided)
        expected = oracle(QUESTION, SETTINGS, MODELS)[0]
        assert (decided.step, decided.token, decided.waited) == (0, expected, 1.5)
        assert decided.cause == ("other" if own_first else "own")
        assert decided.cloud == (theirs.token == expected)
        assert list(mode.decided) == [expected]


def test_what_takes_long_is_mixed_by_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "LIGHT_BYTES", 8)
    mode = joined(settings=HEAVY)
    do(mode, wanted(mode))
    mode.handle(Received("cloud", their_draft("device", EMPTY, 0, HEAVY)), 0.0)
    assert list(mode.decided) == []
    work = wanted(mode)
    assert (work.span, work.peer) == (None, "cloud")
    effects = do(mode, work, 1.0)
    assert [event.token for event in of(effects, events.TokenDecided)] == list(mode.decided)
    assert len(mode.decided) == 1
    # A heavy payload is not decoded before: postprocessing says what is wrong with it.
    broken = joined(settings=HEAVY)
    do(broken, wanted(broken))
    message = their_draft("device", EMPTY, 0, HEAVY, payload=b"\xff" * 100)
    broken.handle(Received("cloud", message), 0.0)
    work = wanted(broken)
    assert work.peer == "cloud"
    with pytest.raises(CodecError):
        work.postprocess(())


def test_a_mixture_of_a_session_that_is_over_decides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next session may not be open yet, and its other side not the same."""
    monkeypatch.setattr(decision, "LIGHT_BYTES", 8)
    settings = replace(HEAVY, aggregator=Aggregator.DEVICE)
    mode = joined(settings=settings)
    theirs = their_draft("device", EMPTY, 0, settings)
    do(mode, wanted(mode))
    mode.handle(Received("cloud", theirs), 0.1)
    mixing = mixed(mode)
    mode.handle(Left("cloud", GONE, True), 0.2)
    mode.handle(Joined("cloud", 9), 0.3)
    late = do(mode, mixing, 0.4)
    assert list(mode.decided) == []
    assert not [each for _, each in late.send if isinstance(each, Target)]
    mode.handle(Received("cloud", structs.replace(theirs, session=9)), 0.5)
    (target,) = [each for _, each in do(mode, mixed(mode), 0.6).send if isinstance(each, Target)]
    assert (target.session, [target.token]) == (9, list(mode.decided))


def test_the_aggregator_says_what_it_decided_and_who_is_next() -> None:
    greedy = replace(SETTINGS, aggregator=Aggregator.GREEDY)
    profile = DecodeProfile(k_a=0.0, k_b=1.0, k_c=0.001)
    mode = machine("device", QUESTION, greedy, profile=profile)
    mode.handle(Joined("cloud", 8), 0.0)
    mode.handle(Measured("cloud", 0.1, None), 0.0)
    mode.handle(Prepared(), 0.0)
    do(mode, wanted(mode))
    effects = mode.handle(Received("cloud", their_draft("device", EMPTY, 0, greedy)), 0.0)
    (target,) = [each for _, each in effects.send if isinstance(each, Target)]
    assert (target.session, target.step, target.prefix_hash) == (8, 0, start_hash(7))
    assert target.token == mode.decided[0]
    (estimate,) = of(effects, events.LatencyEstimated)
    assert (estimate.step, estimate.rtt) == (1, 0.1)
    assert (estimate.device_s, estimate.cloud_s) == (0.001, 0.001), "nothing is known of the cloud"
    assert (target.aggregator == "cloud") is (estimate.difference > 0)
    switched = of(effects, events.AggregatorSwitched)
    assert [event.to for event in switched] == (["cloud"] if estimate.difference > 0 else [])
    assert mode.times_bandwidth
    assert not joined().times_bandwidth


def test_only_the_sides_of_a_schedule_exchange_times() -> None:
    greedy = replace(SETTINGS, aggregator=Aggregator.GREEDY)
    mode = machine("cloud", settings=greedy, profile=DecodeProfile(k_a=2e-3, k_b=2.0, k_c=0.01))
    mode.handle(Joined("device", 8), 1.0)
    ((_, told),) = mode.handle(Prepared(context=100), 1.0).send
    assert isinstance(told, Coefficients)
    assert (told.k_a / told.k_b, told.k_b) == (1e-3, 256)
    assert told.k_c == pytest.approx(0.11)
    mode.handle(Received("device", Coefficients(8, 0.0, 1.0, 0.02)), 1.0)
    (first,) = drafts_of(do(mode, wanted(mode), 1.5))
    (second,) = drafts_of(do(mode, wanted(mode), 1.6))
    assert [each.decode_us for each in (first, second)] == [0, 10_000], "the first needs no forward"
    assert (first.time_us, first.echo_us) == (500_001, 0)
    mode.handle(Received("device", their_draft("cloud", EMPTY, 0, time_us=9)), 2.0)
    (third,) = drafts_of(do(mode, wanted(mode), 2.25))
    assert third.echo_us == 250_009
    for settings in (
        SETTINGS,
        replace(SETTINGS, disclose=Disclosure.ANSWER),
        replace(greedy, traffic="constant:20ms"),
    ):
        quiet = machine("device", settings=settings, profile=DecodeProfile(k_a=0, k_b=1, k_c=0.01))
        quiet.handle(Joined("cloud", 8), 1.0)
        sent = quiet.handle(Prepared(context=100), 1.0).send
        sent += do(quiet, wanted(quiet), 1.5).send + do(quiet, wanted(quiet), 1.6).send
        sent += quiet.handle(Received("cloud", their_draft("device", EMPTY, 0)), 2.0).send
        for _, each in sent:
            assert isinstance(each, Draft | Target)
            times = each.time_us, each.echo_us, getattr(each, "decode_us", 0)
            assert times == (0, 0, 0)
        assert sent


def test_who_does_not_aggregate_decides_nothing() -> None:
    mode = joined(settings=replace(SETTINGS, aggregator=Aggregator.CLOUD))
    do(mode, wanted(mode))
    theirs = their_draft("device", EMPTY, 0)
    assert of(mode.handle(Received("cloud", theirs), 0.0), events.TokenDecided) == []
    target = Target(8, 0, start_hash(7), theirs.token, "cloud")
    (decided,) = of(mode.handle(Received("cloud", target), 0.0), events.TokenDecided)
    assert (decided.token, decided.cause, decided.cloud) == (theirs.token, "target", True)


# Another text.


def draft(**fields: Any) -> Draft:
    quantized = codec("topp:0.95", V).quantize(np.full(V, 1 / V), Step(0))
    payload, start = codec("topp:0.95", V).encode(quantized), start_hash(7)
    good = Draft(8, 0, start, 3, 0.0, 100, 0, start & LOW_BITS, payload)
    return structs.replace(good, **fields)


def test_a_side_with_another_text_is_restarted_once() -> None:
    """The device's text stands; a cloud only counts it and waits to be left."""
    wrong = draft(decided_hash=5)
    mode = joined()
    effects = mode.handle(Received("cloud", wrong), 0.0)
    assert of(effects, events.TextsDiverged) == [events.TextsDiverged(0)]
    (leave,) = effects.leave
    assert (leave.peer, leave.again) == ("cloud", True)
    mode.handle(Joined("cloud", 9), 1.0)
    effects = mode.handle(Received("cloud", wrong), 2.0)
    (leave,) = effects.leave
    assert not leave.again
    assert of(effects, events.WentAlone) == [events.WentAlone(0)]
    cloud = joined("cloud")
    effects = cloud.handle(Received("device", wrong), 0.0)
    assert len(of(effects, events.TextsDiverged)) == 1
    assert effects.leave == []


def test_what_was_decided_ahead_is_compared_when_one_is_as_far() -> None:
    text = TokenPrefix(start_hash(7), oracle(QUESTION, SETTINGS, MODELS)[:1])
    for decided_hash, diverges in ((text.hash & LOW_BITS, []), (5, [events.TextsDiverged(1)])):
        mode = joined()
        mode.handle(Received("cloud", their_draft("device", text, 0)), 0.0)
        ahead = their_draft("device", text, 1, decided_hash=decided_hash)
        assert of(mode.handle(Received("cloud", ahead), 0.0), events.TextsDiverged) == []
        assert of(do(mode, wanted(mode)), events.TextsDiverged) == diverges


# What a device keeps to itself.


def test_tokens_decided_alone_are_withheld_from_another_cloud() -> None:
    mode = left(REDACTED)
    for _ in range(3):
        effects = do(mode, wanted(mode))
        assert all(event.withheld for event in of(effects, events.TokenDecided))
    asked = mode.disclosed(
        replace(QUESTION, history=(("who?", "Tom"), ("why?", "so")), shown=("…",))
    )
    assert asked.accepted == MARKER
    assert asked.history == (("who?", " …"), ("why?", "…"))
    assert asked.max_tokens == 30
    assert len(mode.decided) >= 3
    assert mode.handle(Joined("cloud", 9), 0.0).send == []


def test_who_complains_of_a_draft_tells_no_length_of_a_run() -> None:
    mode = left(REDACTED, steps=3)
    mode.handle(Joined("cloud", 9), 0.0)
    with pytest.raises(ModeError):
        mode.handle(Received("cloud", draft(step=99, ahead=99)), 0.0)
