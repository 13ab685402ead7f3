"""Where the index is kept unless the user says otherwise, and which prompt a model gets."""

from pathlib import Path
from typing import Any

import pytest

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prompt import READER, PromptTemplate
from dragonrt.node.process import composition as process
from dragonrt.node.process.side_settings import SideSettings
from retrieval.store import FORMAT

OWN = PromptTemplate("{document} {question}")


@pytest.mark.parametrize("samples", [True, False])
def test_only_the_index_of_samples_is_of_a_version(
    samples: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    places = (bundled.documents("device"), *([] if samples else [tmp_path]))
    now = process.default_index(places)
    monkeypatch.setattr(process, "FORMAT", FORMAT + 1)
    later = process.default_index(places)
    assert (now.parent, now != later) == (later.parent, samples)


@pytest.mark.parametrize(
    ("model", "adapter", "own", "read"),
    [
        (bundled.SMOLLM2, None, False, None),  # by the name in its file
        (bundled.SMOLLM2, "none", False, None),
        (bundled.SMOLLM2, "other", False, READER),
        (bundled.SMOLLM2, "other", True, OWN),
        ("dragon-small", "other", False, None),
    ],
)
def test_another_adapter_of_the_reader_has_the_readers_prompt(
    model: str,
    adapter: str | None,
    own: bool,
    read: PromptTemplate | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[Any] = []
    monkeypatch.setattr(process, "base_file", lambda: tmp_path / "base.gguf")
    monkeypatch.setattr(LanguageModel, "load", lambda *given: loaded.extend(given))
    monkeypatch.setattr(bundled, "default_model", lambda name: name)
    (tmp_path / "own.toml").write_text(f'user = "{OWN.user}"')
    prompt = tmp_path / "own.toml" if own else None
    process.load_model(SideSettings("device", model, adapter=adapter, prompt=prompt))
    assert loaded[4:6] == [read, Path("other") if adapter == "other" else None]
