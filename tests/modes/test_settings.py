"""Settings that make no sense are refused with one line; what follows from the others."""

from dataclasses import replace
from typing import Any

import pytest

from dragonrt.control.scheduler import Aggregator
from dragonrt.errors import DragonError
from dragonrt.modes import MODES, entry_of, mode_entry
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterResources, SprinterSettings
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.wire.fields import MAX_TOKENS

ANSWER, REDACTED = Disclosure.ANSWER, Disclosure.REDACTED


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (DragonSettings, {"codec": "ids"}),
        (DragonSettings, {"rule": "algorithm1"}),
        (DragonSettings, {"rule": "telepathy"}),
        (DragonSettings, {"run_ahead": 0}),
        (DragonSettings, {"disclose": ANSWER, "aggregator": Aggregator.CLOUD}),
        (DragonSettings, {"disclose": ANSWER, "aggregator": Aggregator.GREEDY}),
        (DragonSettings, {"disclose": REDACTED, "rule": "algorithm1"}),
        (DragonSettings, {"withhold": 0.5}),
        (DragonSettings, {"traffic": "constant:11s"}),
        (DragonSettings, {"traffic": "constant:20ms:0"}),
        (DragonSettings, {"traffic": "wavy"}),
        (SpeculativeSettings, {"block_tokens": 0, "cloud_decodes": False}),
        (SpeculativeSettings, {"block_tokens": 257}),
        (SpeculativeSettings, {"budget": 0}),
        (SpeculativeSettings, {"rule": "rejection"}),
        (SpeculativeSettings, {"controller": "static:1:2", "block_tokens": 3}),
        (SpeculativeSettings, {"codec": "zip"}),
        (SpeculativeSettings, {"draft": "auto"}),
        (SpeculativeSettings, {"draft": "lookup", "controller": "heuristic:9"}),
        (FederatedSettings, {"codec": "ids"}),
        (FederatedSettings, {"rule": "sample-quantize"}),
        (FederatedSettings, {"block_tokens": 256}),
        (FederatedSettings, {"quorum_deadline": 0.0}),
        (SprinterSettings, {"rule": "coupled"}),
        (SprinterSettings, {"codec": "ids"}),
        (SprinterSettings, {"threshold": 1.5}),
        (SprinterSettings, {"run_length": 0}),
        (SprinterSettings, {"run_length": 257}),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_line(
    kind: type[Settings], fields: dict[str, Any]
) -> None:
    kind()
    with pytest.raises(DragonError) as refused:
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
    with pytest.raises(DragonError):
        mode_entry("telepathy")
    assert [name for name, entry in MODES.items() if not entry.exact] == ["sprinter"]


def test_a_sprinter_without_a_verifier_is_refused() -> None:
    with pytest.raises(DragonError):
        mode_entry("sprinter").device(
            Question(), SprinterSettings(), SprinterResources(vocabulary=4)
        )


def test_a_question_knows_its_bounds() -> None:
    Question(stop_tokens=(3,), accepted=(1, 2)).check_vocabulary(4)
    for question in (Question(stop_tokens=(4,)), Question(accepted=(4,))):
        with pytest.raises(DragonError):
            question.check_vocabulary(4)
    assert Question(seed=3).resumed((1, 2)) == Question(seed=3, accepted=(1, 2))
    assert Question(max_tokens=MAX_TOKENS).redacted("", (), (3, 4)).max_tokens == MAX_TOKENS
    with pytest.raises(DragonError):
        Question(history=(("a" * 2**20, "b" * 2**20),) * 9)


@pytest.mark.parametrize(
    ("level", "keeps", "redacts"),
    [("drafts", False, False), ("answer", True, False), ("redacted", True, True)],
)
def test_a_level_counts_by_its_name(level: str, keeps: bool, redacts: bool) -> None:
    """Also where it was not parsed: nothing may leave because a text is no member of an enum."""
    settings = replace(DragonSettings(), disclose=level)  # type: ignore[arg-type]
    assert (settings.keeps_drafts, settings.redacts) == (keeps, redacts)
