"""Texts of experiments: the long ones hold the evidence, and no more than there is room for."""

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from retrieval.documents import load
from scripts.papers.texts import answerable, with_evidence, within_long_text

ROOM = 120


def test_a_long_text_has_the_document_somewhere_among_articles(model: LanguageModel) -> None:
    places = set()
    for question in answerable():
        long = within_long_text(model, question, ROOM)
        assert long == within_long_text(model, question, ROOM)
        ((side, name),) = question.evidence
        evidence = load(bundled.documents(side) / name).text.strip()
        told, asked = model.decode(long.tokens).split("\n\n")
        assert evidence in told
        places.add(told.index(evidence) > len("Document: "))
        assert asked == f"Question: {question.text}\nAnswer:"
        assert ROOM - 60 < len(model.encode(told)) < ROOM + 5
        assert long.stops == with_evidence(model, question).stops
    assert places == {True, False}


def test_without_room_it_is_the_document_alone(model: LanguageModel) -> None:
    question = answerable()[0]
    short = model.decode(with_evidence(model, question).tokens)
    assert model.decode(within_long_text(model, question, 1).tokens).split() == short.split()
