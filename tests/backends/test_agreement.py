"""Values are named whole: kinds of tokens, phases, and every text that two documents may give."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from dragonrt.backends import prefix_cache
from dragonrt.backends.agreement import (
    BEFORE,
    GAP,
    LOST,
    NAME,
    NONE,
    NUMBER,
    Agreement,
    Kind,
    ValueState,
    kind_of,
    phase_after,
)
from dragonrt.backends.mixture import Mixture, RowWeights
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.backends.transformers_.backend import TorchLogits
from dragonrt.sampling.rules import side_weights
from tests.copying_model import PAIRS, Copying, after, cache, numbered


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *((text, Kind.DIGIT) for text in ("1", " 12", "7th", "²", "x9")),
        *((text, Kind.CAPITAL) for text in (" March", " K", " Élan")),
        *((text, Kind.ATTACHED_CAPITAL) for text in ("KX", "Irene")),
        *((text, Kind.ATTACHED) for text in ("ow", "th", "é")),
        *((text, Kind.JOINT) for text in (",", ".", " ", "-", ":", " (")),
        *((text, Kind.WORD) for text in (" pounds", " de", "\nand", " 年", "年")),
        *((text, Kind.BREAK) for text in ("", "\n", "?", ";", " “", "!\n")),
    ],
)
def test_a_token_has_the_kind_of_its_text(text: str, kind: Kind) -> None:
    assert kind_of(text) is kind


@pytest.mark.parametrize(
    ("pieces", "phases"),
    [
        (["It", " is", " ", "9", ",", "9"], [NAME, NONE, NONE, NUMBER, NUMBER, NUMBER]),
        (["1", "4", " March", " ", "2", "0"], [NUMBER, NUMBER, GAP, GAP, NUMBER, NUMBER]),
        (["3", " hours", " and", " ", "2"], [NUMBER, GAP + 1, GAP + 2, GAP + 2, NUMBER]),
        (["9", " a", " b", " c", " d", " A"], [NUMBER, GAP + 1, GAP + 2, GAP + 3, NONE, NAME]),
        (["7", "-", "K", "X", " at"], [NUMBER, NUMBER, NUMBER, NUMBER, GAP + 1]),
        ([" Ire", "ne", " Kim", " at", " ", "1"], [NAME, NAME, NAME, NONE, NONE, NUMBER]),
        ([" Kim", "\n", "1", "?", "x", "."], [NAME, NONE, NUMBER, NONE, NONE, NONE]),
    ],
)
def test_a_value_goes_on_as_far_as_its_phases_say(pieces: list[str], phases: list[int]) -> None:
    found = itertools.accumulate(map(kind_of, pieces), phase_after, initial=NONE)
    assert list(found)[1:] == phases


# Mixtures.


def logits(rows: list[list[float]]) -> TorchLogits:
    return TorchLogits(torch.log(torch.tensor(rows)), torch.zeros(len(rows), 1))


ROWS = [[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]]
PIECES = ["1", " pounds", "B"]
RELEVANCES = [math.log(3.0), 0.0]


@pytest.mark.parametrize(
    ("phase", "lost", "parts"),
    [
        (NUMBER, 0b00, [[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]]),
        (NUMBER, 0b10, [[0.6, 0.3, 0.1], [0.0, 0.0, 0.0]]),
        (NAME, 0b10, [[0.6, 0.3, 0.1], [0.0, 0.3, 0.0]]),
        (GAP + 1, 0b01, [[0.0, 0.3, 0.0], [0.2, 0.3, 0.5]]),
    ],
)
def test_a_row_that_lost_says_what_belongs_to_no_value(
    phase: int, lost: int, parts: list[list[float]]
) -> None:
    by = Agreement(lambda tokens: PIECES[tokens[0]], len(PIECES))
    said = Mixture(logits(ROWS), lambda: RowWeights(RELEVANCES), ValueState(phase, lost), by)
    weighed = np.array([[0.75], [0.25]]) * np.array(parts)
    kept = weighed.sum()
    assert said.relevance == pytest.approx(math.log(4.0))
    assert math.exp(said.kept) == pytest.approx(kept)
    assert said.p == pytest.approx(weighed.sum(axis=0) / kept)
    assert said.shares(np.arange(3)) == pytest.approx(weighed / kept, abs=1e-6)
    assert said.weights == pytest.approx(weighed.sum(axis=1) / kept, abs=1e-6)


def test_rows_that_all_lost_weigh_as_before() -> None:
    by = Agreement(lambda tokens: PIECES[tokens[0]], len(PIECES))
    said = Mixture(logits(ROWS), lambda: RowWeights(RELEVANCES), ValueState(NUMBER, 0b11), by)
    assert said.kept == pytest.approx(-LOST)
    assert said.p == pytest.approx([0.5, 0.3, 0.2])
    assert said.weights == pytest.approx([0.75, 0.25])


def test_a_row_disagrees_with_a_name_if_it_is_sure_of_another() -> None:
    rows = logits([[0.001, 0.599, 0.4], [0.001, 0.4995, 0.4995], [0.2, 0.8, 1e-9]])
    by = Agreement(lambda tokens: [" Kim", " at", "1"][tokens[0]], 3)
    assert by.state_with_rows(BEFORE, 0, rows)[:2] == (NAME, 0b001)
    assert by.state_with_rows(BEFORE, 1, rows) == BEFORE
    assert by.state_with_rows(BEFORE, 2, rows)[:2] == (NUMBER, 0b100)
    assert by.state_with_rows(ValueState(NUMBER, 0b100), 0, rows)[:2] == (GAP, 0b111)


def test_what_a_row_gave_a_value_counts_together() -> None:
    """A row that is not sure gives each of its tokens more than the least."""
    rows = logits([[0.9, 0.1, 0.0], [0.03, 0.0, 0.97]])
    by = Agreement(lambda tokens: ["1", " pounds", "."][tokens[0]], 3)
    once = by.state_with_rows(BEFORE, 0, rows)
    assert once[:2] == (NUMBER, 0)
    again = by.state_with_rows(once, 0, rows)
    assert again[:2] == (NUMBER, 0b10)
    assert again.given == pytest.approx(2 * np.log([0.9, 0.03]), abs=1e-5)
    assert by.state_with_rows(again, 1, rows) == again._replace(phase=GAP + 1)


# Whole texts.


def spliced(sides: Sequence[PrefixCache], texts: Sequence[str], least: float = 1e-4) -> float:
    """The share of texts that begin no document, of those that are so likely."""
    known = [numbered(text) for text in texts]
    whole = wrong = 0.0
    waiting: list[tuple[list[int], float]] = [([], 1.0)]
    while waiting:
        tokens, likely = waiting.pop()
        if tokens[-1:] == [0]:
            whole += likely
            wrong += likely * all(text[: len(tokens) - 1] != tokens[:-1] for text in known)
            continue
        said = [after(side, tokens)[0] for side in sides]
        weights: Sequence[float] = (1.0,)
        if len(said) == 2:
            weights = side_weights(*(each.relevance + each.kept for each in said))
        p = sum(w * each.p.astype(np.float64) for w, each in zip(weights, said, strict=True))
        for token, each in enumerate(np.asarray(p).tolist()):
            if likely * each >= least:
                waiting.append(([*tokens, token], likely * each))
    return wrong / whole


@pytest.mark.parametrize("texts", PAIRS)
def test_two_documents_that_disagree_give_one_of_their_values(texts: tuple[str, str]) -> None:
    """Of two sides and of one, over every text; without the rule many are values of neither."""
    by_side = [[cache(text, agrees=agrees) for text in texts] for agrees in (True, False)]
    for sides in (by_side, [[cache(*texts, agrees=agrees)] for agrees in (True, False)]):
        ruled, free = (spliced(each, texts) for each in sides)
        assert ruled < 0.01
        assert free > 0.1


@pytest.mark.parametrize("texts", PAIRS)
def test_who_agrees_depends_on_the_text_alone(texts: tuple[str, str]) -> None:
    """However it is read: at once, token by token, after a rollback, or resumed in its middle."""
    for number in range(2):
        text = numbered(texts[number])
        whole = after(cache(*texts), text, 0)
        assert {each.state.lost for each in whole} == {0, 2 - number}
        apart = cache(*texts)
        for length, expected in enumerate(whole):
            for tokens in (text[:length], [*text[:length], 1], text[:length]):
                found = after(apart, tokens)[0]
            assert found.p.tobytes() == expected.p.tobytes()
            resumed = after(cache(*texts), text[:length])[0]
            assert (resumed.kept, resumed.state) == (expected.kept, expected.state)


def test_no_prefix_is_read_twice_as_long_as_a_text_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, (text, other) = Copying(), PAIRS[0]
    side = cache(text, other, backend=backend)
    for length in range(len(numbered(text))):
        after(side, numbered(text)[:length])
    assert backend.fed == [1] * len(backend.fed)
    monkeypatch.setattr(prefix_cache, "REMEMBERED_STATES", 0)
    expected = after(cache(text, other), numbered(text))[0]
    assert after(side, numbered(text))[0].state == expected.state
