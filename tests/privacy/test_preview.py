"""What a preview says of an answer, and that it is what the door lets out."""

from typing import Any

import pytest

from dragonrt.modes.question import Question
from dragonrt.modes.registry import Resources, entry_of
from dragonrt.modes.settings import (
    DragonSettings,
    FederatedSettings,
    Settings,
    SpeculativeSettings,
    SprinterSettings,
)
from dragonrt.node.client_session import foreseen
from dragonrt.privacy.disclosure import RULES, Disclosure, Door
from dragonrt.privacy.preview import ALL, KINDS, of_parts, preview
from dragonrt.testing.scripted import PrefixVerifier
from dragonrt.traces.events import Disclosed
from dragonrt.wire import messages as wire
from dragonrt.wire.values import pack

ASKED = Question(prompt="où?", instructions="short", history=(("who?", "Tom"),), shown=("T…",))
RESOURCES = Resources(vocabulary=16, verifier=PrefixVerifier(), marker=(3, 4))
TOKENS, ALSO_DISTRIBUTIONS = ("tokens",), ("tokens", "distributions")
SENT: dict[str, tuple[Settings, tuple[str, ...]]] = {
    "drafts": (DragonSettings(), ALSO_DISTRIBUTIONS),
    "answer": (DragonSettings(disclose=Disclosure.ANSWER), TOKENS),
    "redacted": (DragonSettings(disclose=Disclosure.REDACTED), TOKENS),
    "ids": (SpeculativeSettings(), TOKENS),
    "points": (SpeculativeSettings(rule="rejection", codec="ksqs:6:40"), ALSO_DISTRIBUTIONS),
    "workers": (FederatedSettings(), TOKENS),
    "sprinter": (SprinterSettings(), ALSO_DISTRIBUTIONS),
}


@pytest.mark.parametrize("name", SENT)
def test_it_has_the_bytes_of_the_question_and_what_the_mode_sends(name: str) -> None:
    settings, sent = SENT[name]
    found = foreseen(ASKED, settings, RESOURCES)
    assert found.bytes_of("question") == len("où?short".encode())
    assert found.bytes_of("history") == len("who?T…".encode()), "as another side was told it"
    assert found.kinds == ("question", "history", *sent)
    assert found.withholds == (name == "redacted")
    assert not found.foresees(Disclosed("close", documents=1))
    assert not found.foresees(Disclosed("upload", distributions=1))


def test_of_a_mode_that_does_not_say_what_it_sends_all_may_leave() -> None:
    assert {*map(type, ALL), wire.Open, wire.Conclude} == set(RULES)
    opening = wire.Open(1, "other", pack(ASKED), ())
    assert preview(Door(keeps_drafts=False), opening, ALL).kinds == KINDS
    assert preview(Door(keeps_drafts=True), opening, ALL).kinds == ("question", "history", "tokens")


def test_the_parts_of_a_question_are_sent_one_by_one() -> None:
    first = foreseen(Question(prompt="what?"), DragonSettings(), RESOURCES)
    later = foreseen(ASKED, DragonSettings(), RESOURCES)
    both = of_parts([first, later])
    for kind in ("question", "history"):
        assert both.bytes_of(kind) == first.bytes_of(kind) + later.bytes_of(kind)
    assert "history" not in first.kinds


@pytest.mark.parametrize(
    ("how", "levels"),
    [
        ({}, [*Disclosure]),
        ({"disclose": Disclosure.ANSWER}, [Disclosure.ANSWER, Disclosure.REDACTED]),
        ({"disclose": Disclosure.REDACTED}, [Disclosure.REDACTED]),
        ({"aggregator": "cloud"}, [Disclosure.DRAFTS]),
        ({"rule": "algorithm1", "aggregator": "device"}, [Disclosure.DRAFTS, Disclosure.ANSWER]),
    ],
)
def test_no_level_discloses_more_than_the_settings(how: Any, levels: list[Disclosure]) -> None:
    settings = DragonSettings(**how)
    assert settings.levels[0] is settings
    assert [each.level for each in settings.levels] == levels


def test_a_mode_without_levels_has_its_settings_alone() -> None:
    settings = SpeculativeSettings()
    assert (settings.level, settings.levels) == (None, (settings,))
    assert entry_of(settings).name == "speculative"
