"""What a preview says of an answer, and that it is what the door lets out."""

from dataclasses import replace
from typing import Any

import pytest

from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.question import Question
from dragonrt.modes.registry import entry_of
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter.settings import SprinterSettings
from dragonrt.node.answers.client_session import foreseen
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.privacy.preview import of_parts
from dragonrt.testing.scripted import scripted_resources
from dragonrt.traces.events import Disclosed

ASKED = Question(prompt="où?", instructions="short", history=(("who?", "Tom"),), shown=("T…",))
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


def resources_of(settings: Settings) -> Any:
    return scripted_resources(settings, 16, {"cloud": 1.0})


@pytest.mark.parametrize("name", SENT)
def test_it_has_the_bytes_of_the_question_and_what_the_mode_sends(name: str) -> None:
    settings, sent = SENT[name]
    found = foreseen(ASKED, settings, replace(resources_of(settings), marker=(3, 4)))
    assert found.bytes_of("question") == len("où?short".encode())
    assert found.bytes_of("history") == len("who?T…".encode()), "as another side was told it"
    assert found.kinds == ("question", "history", *sent)
    assert found.withholds == (name == "redacted")
    assert not found.foresees(Disclosed("close", documents=1))
    assert not found.foresees(Disclosed("upload", distributions=1))


def test_the_parts_of_a_question_are_sent_one_by_one() -> None:
    resources = resources_of(DragonSettings())
    first = foreseen(Question(prompt="what?"), DragonSettings(), resources)
    later = foreseen(ASKED, DragonSettings(), resources)
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
