"""Questions and settings travel whole, and nothing else is taken for them."""

from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.settings import assemble, entries, flat, traced
from dragonrt.wire.fields import MAX_TOKENS, Values, pack, unpack
from dragonrt.wire.reasons import MessageError

TOKEN = st.integers(0, 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
QUESTIONS = st.builds(
    Question,
    prompt=TEXT,
    history=st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
    seed=st.integers(0, 2**64 - 1),
    sampler=st.builds(
        Sampler,
        temperature=st.floats(0, 100),
        top_k=st.integers(0, 2**31 - 1),
        top_p=st.floats(0, 1, exclude_min=True),
        min_p=st.floats(0, 1),
    ),
    max_tokens=st.integers(1, MAX_TOKENS),
    stop_tokens=st.lists(TOKEN, max_size=3).map(tuple),
    documents=st.integers(0, 256),
    relevance_temperature=st.floats(1e-9, 1e9),
    reweight_every=st.integers(0, 100),
    doubt=st.floats(0, 100),
    accepted=st.lists(TOKEN, max_size=5).map(tuple),
)
EVERY = (
    DragonSettings(run_ahead=7, follow=False),
    SpeculativeSettings(rule="rejection", codec="csqs:0.01:100"),
    FederatedSettings(codec="topk:8:renorm"),
    SprinterSettings(),
)


def travelled(values: Values) -> Values:
    """As msgpack gives them back."""
    back: Values = msgpack.unpackb(msgpack.packb(values), use_list=False)
    return back


@given(QUESTIONS)
def test_a_question_travels_whole(question: Question) -> None:
    assert unpack(Question, travelled(pack(question))) == question
    assert assemble(Question, flat(question)) == question


@pytest.mark.parametrize("settings", EVERY)
def test_of_settings_travels_what_the_other_side_needs(settings: Any) -> None:
    kept_here = {each.name for each in entries(type(settings)) if not each.about.travels}
    packed = dict(pack(settings))
    assert packed.keys() == flat(settings).keys() - kept_here
    defaults = {name: getattr(type(settings)(), name) for name in kept_here}
    assert unpack(type(settings), travelled(pack(settings))) == replace(settings, **defaults)


def test_long_accepted_tokens_are_exact() -> None:
    question = Question(accepted=tuple(range(2**31 - MAX_TOKENS, 2**31)))
    assert unpack(Question, travelled(pack(question))).accepted == question.accepted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt", "x" * (2**16 + 1)),
        ("prompt", "\ud800"),
        ("history", (("a", "b"),) * 65),
        ("history", (("x" * 2**16, ""),) * 17),
        ("seed", -1),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_p", 1.5),
        ("top_p", 0.0),
        ("max_tokens", 0),
        ("max_tokens", MAX_TOKENS + 1),
        ("stop_tokens", bytes(4 * 257)),
        ("stop_tokens", b"123"),
        ("stop_tokens", (1, 2)),
        ("accepted", b"\xff" * 4),
        ("accepted", bytes(4 * MAX_TOKENS + 4)),
        ("relevance_temperature", 0.0),
        ("colour", "red"),
    ],
)
def test_wrong_values_are_named(name: str, value: Any) -> None:
    values = tuple((each, value if each == name else old) for each, old in pack(Question()))
    if name not in dict(values):
        values += ((name, value),)
    with pytest.raises(MessageError) as caught:
        unpack(Question, values)
    assert name in caught.value.text
    assert "\n" not in caught.value.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("follow", 1),
        ("aggregator", "edge"),
        ("codec", "zip"),
        ("rule", "dice"),
        ("rule", "algorithm1"),
        ("on_loss", "wait"),
    ],
)
def test_wrong_settings_are_named(name: str, value: Any) -> None:
    values = {**dict(pack(DragonSettings())), name: value}
    with pytest.raises(MessageError) as caught:
        unpack(DragonSettings, tuple(values.items()))
    assert name in caught.value.text


def test_a_value_that_comes_twice_is_refused() -> None:
    with pytest.raises(MessageError):
        unpack(Question, (("seed", 1), ("seed", 2)))


VALUE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.binary(max_size=9)
)
NAMES = st.sampled_from([each.name for each in entries(Question)]) | st.text(max_size=9)


@given(st.lists(st.tuples(NAMES, VALUE), max_size=8).map(tuple))
def test_whatever_comes_only_documented_errors_go_out(values: Values) -> None:
    try:
        question = unpack(Question, values)
    except MessageError:
        return
    assert set(dict(values)) <= flat(question).keys()


def test_the_words_of_a_question_stand_in_no_trace() -> None:
    shown = traced(Question(prompt="a secret", history=(("another", "secret"),)))
    assert not shown.keys() & {"prompt", "history", "accepted", "stop_tokens"}
    assert shown["max_tokens"] == 64
