"""What crosses at each level, and the attackers: on notes that nobody has written."""

import numpy as np
import pytest

from dragonrt.backends.model import LanguageModel
from scripts.lab.intervals import paired, share
from scripts.papers.dragon.attackers import CLASSIFIERS, auc, guessed, membership, named
from scripts.papers.dragon.attacks import LEVELS, Liar
from scripts.papers.dragon.crossing import Scene, Seen, words
from scripts.papers.dragon.notes import canary_notes, rival_notes


def test_no_two_notes_have_a_question_or_a_canary_in_common() -> None:
    notes = canary_notes(60, seed=4)
    assert len({note.question for note in notes}) == len({note.canary for note in notes}) == 60
    assert all(note.canary in note.text and note.canary not in note.question for note in notes)
    assert notes == canary_notes(60, seed=4)
    assert notes != canary_notes(60, seed=5)


def test_rivals_answer_one_question_in_different_ways() -> None:
    for seed in range(20):
        notes = rival_notes(20, seed)
        assert len({note.question for note in notes}) == 1
        assert len({note.text for note in notes}) == 20


def test_the_auc_is_a_half_where_nothing_tells() -> None:
    assert auc([1.0, 2.0], [0.0, 0.5]) == 1.0
    assert auc([0.0, 0.0], [0.0, 0.0]) == 0.5
    draw = np.random.default_rng(3)
    found = paired(auc, draw.random(60).tolist(), draw.random(60).tolist())
    assert found.low < 0.5 < found.high
    assert membership({5: 0.5, 6: 0.25, 7: 1.0}, [5, 5, 6, 9], {6}) == 0.5
    assert words("Tom's tel. 555-0163: an Öl") == {"tom", "tel", "555", "0163"}


def test_a_share_of_few_is_uncertain_where_all_or_none_succeeded() -> None:
    none, every = share([0.0] * 10), share([1.0] * 10)
    assert none.low == 0.0 < none.high == pytest.approx(0.2775, abs=1e-4)
    assert every.high == 1.0 > every.low == pytest.approx(0.7225, abs=1e-4)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_a_question_is_named_by_sizes_unless_all_look_alike(classifier: str) -> None:
    asked = [question for question in range(5) for _ in range(6)]
    told = [[Seen(0.0, True, 100 + 70 * each), Seen(0.1, False, 9)] for each in asked]
    assert all(named(told, asked, 3, classifier)) == (classifier != "times alone")
    late = [[Seen(0.0, True, 100), Seen(0.1 + 0.2 * each, False, 9)] for each in asked]
    assert all(named(late, asked, 3, classifier))
    alike = [[Seen(0.0, True, 100), Seen(0.1, False, 9)] for _ in asked]
    assert sum(named(alike, asked, 3, classifier)) <= 12


def test_a_document_is_named_if_it_crosses_and_by_chance_if_not(model: LanguageModel) -> None:
    scene, right = Scene(model), 2
    texts = [note.text for note in rival_notes(5, seed=1)]
    tokens = [model.encode(f" {text}") for text in texts]
    question = scene.question("What stands in the note?")
    said = [*tokens[right], *question.stop_tokens[:1]]
    device = scene.speaking("device", Liar([said], model.vocabulary, 12.0))
    cloud = scene.speaking("cloud", Liar([], model.vocabulary, 0.0))
    reader = scene.reader(question, texts)
    for level, chance in (("drafts", 1.0), ("answer", 1.0), ("redacted", 0.2)):
        heard = scene.heard((device, cloud), question, LEVELS[level])
        crossed = heard.listed(model.vocabulary)
        assert guessed([membership(crossed, each, set()) for each in tokens], right) == chance
        assert guessed(scene.likelihoods(heard, reader), right) == chance
