"""Where the index of documents is kept unless the user says otherwise."""

from pathlib import Path

import pytest

from dragonrt import bundled
from dragonrt.node import process
from retrieval.store import FORMAT


def test_sample_documents_never_meet_the_index_of_an_earlier_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = process.default_index((bundled.documents("device"),))
    monkeypatch.setattr(process, "FORMAT", FORMAT + 1)
    later = process.default_index((bundled.documents("device"),))
    assert now.parent == later.parent
    assert now != later


def test_the_index_of_a_persons_documents_stays_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = process.default_index((tmp_path, bundled.documents("device")))
    monkeypatch.setattr(process, "FORMAT", FORMAT + 1)
    assert process.default_index((tmp_path, bundled.documents("device"))) == now
