"""The bundled reader answers from files as people have them: found, read and said."""

from pathlib import Path

import pytest

from dragonrt import bundled
from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.modes.question import Question
from dragonrt.node.process.composition import load_model
from dragonrt.node.process.side_settings import SideSettings
from retrieval import Index, Retriever
from scripts.bench.isolated_answers import IsolatedAnswers, in_shared_forwards

from .test_files_of_people import FILES

ALONE = "device alone"
ASKED = {
    ("docx.docx", "What is the emergency number?"): "4412",
    ("xlsx.xlsx", "What is the zip code of the kiln?"): "01234",
    ("pptx.pptx", "What was the sale in 2026?"): "44.5",
    ("pdf_two_col_row_wise.pdf", "What is the deposit for the flat?"): "2,480",
    ("pdf_form_field_note.pdf", "What is the name of the tenant?"): "Ines Alder",
    ("html_del_s_hidden.html", "What is the rent?"): "1,310",
    ("mbox_one_bad_charset_kills_all.mbox", "What is the safe code?"): "4411",
    ("eml_attachment_docx_txt.eml", "What is the inner code?"): "9917",
    ("csv_quoted_newline.csv", "Where does Ada live?"): "12 Mill Lane",
    ("rules_python_docx.docx", "What is the rent of the north room of size 14?"): "455",
}


@pytest.mark.slow
@pytest.mark.skipif(bundled.smollm2_file() is None, reason="the real model is not installed")
def test_ten_files_are_answered_from(tmp_path: Path) -> None:
    embedder, model = load_embedder("default"), load_model(SideSettings("device", "smollm2"))
    Index.update(tmp_path, [FILES / file for file, _ in ASKED], embedder)
    retriever = Retriever(Index.open(tmp_path), embedder)
    answers = IsolatedAnswers(model, Question(max_tokens=24, seed=7), embedder)
    readings = (
        answers.reading(text, {"device": retriever.retrieve(text, 2, within=file)}, [ALONE])
        for file, text in ASKED
    )
    texts = [model.decode(found[ALONE]) for found in in_shared_forwards(model, readings)]
    wrong = [text for text, right in zip(texts, ASKED.values(), strict=True) if right not in text]
    assert not wrong
