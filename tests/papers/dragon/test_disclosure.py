"""What crosses at each level, and the two attackers: on notes that nobody has written."""

import numpy as np

from scripts.papers.dragon.crossing import (
    Seen,
    auc,
    auc_interval,
    canary_notes,
    features,
    membership,
    named,
    words,
)


def test_no_two_notes_have_a_question_or_a_canary_in_common() -> None:
    notes = canary_notes(60, seed=4)
    assert len({note.question for note in notes}) == len({note.canary for note in notes}) == 60
    assert all(note.canary in note.text and note.canary not in note.question for note in notes)
    assert notes == canary_notes(60, seed=4)
    assert notes != canary_notes(60, seed=5)


def test_the_auc_is_a_half_where_nothing_tells() -> None:
    assert auc([1.0, 2.0], [0.0, 0.5]) == 1.0
    assert auc([0.0, 0.0], [0.0, 0.0]) == 0.5
    draw = np.random.default_rng(3)
    low, high = auc_interval(draw.random(60).tolist(), draw.random(60).tolist())
    assert low < 0.5 < high
    assert membership({5: 0.5, 6: 0.25, 7: 1.0}, [5, 5, 6, 9], {6}) == 0.5
    assert words("Tom's tel. 555-0163: an Öl") == {"tom", "tel", "555", "0163"}


def test_a_question_is_named_by_sizes_and_by_nothing_where_all_look_alike() -> None:
    asked = [question for question in range(5) for _ in range(6)]
    told = [features([Seen(0.0, True, 100 + 7 * each), Seen(0.1, False, 9)]) for each in asked]
    assert all(named(told, asked, 3))
    alike = [features([Seen(0.0, True, 100), Seen(0.1, False, 9)]) for _ in asked]
    assert sum(named(alike, asked, 3)) <= 12
