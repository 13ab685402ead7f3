"""Settings that make no sense are refused with one line; what follows from the others."""

from dataclasses import replace
from typing import Any

import pytest

from dragonrt.control.scheduler import Aggregator
from dragonrt.errors import DragonError
from dragonrt.modes.question import Question
from dragonrt.modes.registry import MODES, Resources, entry_of, mode_entry
from dragonrt.modes.settings import (
    DragonSettings,
    FederatedSettings,
    Settings,
    SpeculativeSettings,
    SprinterSettings,
)
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.stopping import AdaEDL, SpecDecPlusPlus

ANSWER, REDACTED = Disclosure.ANSWER, Disclosure.REDACTED


@pytest.mark.parametrize(
    ("kind", "fields", "line"),
    [
        (DragonSettings, {"codec": "ids"}, "mix distributions"),
        (DragonSettings, {"rule": "algorithm1"}, "leaderless"),
        (DragonSettings, {"rule": "telepathy"}, "unknown rule"),
        (DragonSettings, {"run_ahead": 0}, "1"),
        (DragonSettings, {"disclose": ANSWER, "aggregator": Aggregator.CLOUD}, "device decides"),
        (
            DragonSettings,
            {
                "disclose": Disclosure.REDACTED,
                "rule": "algorithm1",
                "aggregator": Aggregator.DEVICE,
            },
            "--rule coupled",
        ),
        (DragonSettings, {"withhold": 0.5}, "from 1"),
        (DragonSettings, {"disclose": ANSWER, "aggregator": Aggregator.GREEDY}, "device decides"),
        (SpeculativeSettings, {"block_tokens": 0}, "256"),
        (SpeculativeSettings, {"block_tokens": 257}, "256"),
        (SpeculativeSettings, {"budget": 0}, "1"),
        (SpeculativeSettings, {"rule": "rejection"}, "the codec ids sends none"),
        (SpeculativeSettings, {"controller": "static:1:2", "block_tokens": 3}, "leave out"),
        (SpeculativeSettings, {"codec": "zip"}, "unknown codec"),
        (SpeculativeSettings, {"stopping": "soon"}, "one of adaedl, specdec"),
        (SpeculativeSettings, {"verifier": "x", "stopping": "adaedl"}, "--stopping specdec"),
        (FederatedSettings, {"codec": "ids"}, "ids"),
        (FederatedSettings, {"rule": "sample-quantize"}, "coupled or rejection"),
        (FederatedSettings, {"block_tokens": 256}, "255"),
        (FederatedSettings, {"quorum_deadline": 0.0}, "0.001"),
        (SprinterSettings, {"rule": "coupled"}, "rejection"),
        (SprinterSettings, {"codec": "ids"}, "distributions"),
        (SprinterSettings, {"threshold": 1.5}, "1"),
        (SprinterSettings, {"run_length": 0}, "256"),
        (SprinterSettings, {"run_length": 257}, "256"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    kind: type[Settings], fields: dict[str, Any], line: str
) -> None:
    kind()
    with pytest.raises(DragonError, match=line) as refused:
        kind(**fields)
    assert "\n" not in str(refused.value)


def test_what_follows_from_the_settings() -> None:
    DragonSettings(rule="algorithm1", aggregator=Aggregator.GREEDY)
    assert DragonSettings(run_ahead=4).window == 9
    assert DragonSettings(disclose=Disclosure.ANSWER).placement is Aggregator.DEVICE
    assert DragonSettings(disclose=Disclosure.DRAFTS).placement is Aggregator.BOTH
    waiting = SpeculativeSettings(pipelined=False)
    assert (waiting.length, waiting.outstanding) == (8, 1)
    assert (SpeculativeSettings().length, SpeculativeSettings().outstanding) == (4, 4)
    assert SpeculativeSettings(block_tokens=3).length == 3


def test_a_mode_is_found_by_its_name_and_by_its_settings() -> None:
    for name, entry in MODES.items():
        assert mode_entry(name) is entry_of(entry.settings()) is entry
    with pytest.raises(DragonError, match="no mode 'telepathy'"):
        mode_entry("telepathy")
    assert [name for name, entry in MODES.items() if not entry.exact] == ["sprinter"]


def test_a_sprinter_without_a_verifier_is_refused() -> None:
    with pytest.raises(DragonError, match="--verifier"):
        mode_entry("sprinter").device(Question(), SprinterSettings(), Resources(vocabulary=4))


def test_a_question_knows_its_bounds() -> None:
    Question(stop_tokens=(3,), accepted=(1, 2)).check_vocabulary(4)
    for question in (Question(stop_tokens=(4,)), Question(accepted=(4,))):
        with pytest.raises(DragonError, match="outside the vocabulary of 4"):
            question.check_vocabulary(4)
    assert Question(seed=3).resumed((1, 2)) == Question(seed=3, accepted=(1, 2))
    with pytest.raises(DragonError, match="at most"):
        Question(history=(("a" * 2**20, "b" * 2**20),) * 9)


def test_a_stopping_rule_ends_blocks_of_at_most_sixteen_tokens() -> None:
    assert SpeculativeSettings().stopping_rule is None
    assert SpeculativeSettings(stopping="adaedl").stopping_rule == AdaEDL(16)
    specdec = SpeculativeSettings(stopping="specdec++", block_tokens=9)
    assert specdec.stopping_rule == SpecDecPlusPlus(9)
    with pytest.raises(DragonError, match="--verifier"):
        entry_of(specdec).device(Question(), specdec, Resources(vocabulary=8))


@pytest.mark.parametrize(
    ("level", "keeps", "redacts"),
    [("drafts", False, False), ("answer", True, False), ("redacted", True, True)],
)
def test_a_level_counts_by_its_name(level: str, keeps: bool, redacts: bool) -> None:
    """Also where it was not parsed: nothing may leave because a text is no member of an enum."""
    settings = replace(DragonSettings(), disclose=level)  # type: ignore[arg-type]
    assert (settings.keeps_drafts, settings.redacts) == (keeps, redacts)
