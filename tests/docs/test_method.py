"""The decoder of docs/method.md, run: its text is the synchronous one's, whatever drafts."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

PAGE = (Path(__file__).parents[2] / "docs" / "method.md").read_text("utf-8")
V = 12


def model(seed: int, sharpness: float) -> Callable[[Sequence[int]], NDArray[np.float64]]:
    """A distribution after every text, drawn once for it."""

    def probabilities(tokens: Sequence[int]) -> NDArray[np.float64]:
        logits = np.random.default_rng([seed, *tokens]).normal(size=V) * sharpness
        weights = np.exp(logits)
        return np.asarray(weights / weights.sum())

    return probabilities


@pytest.fixture(scope="module")
def page() -> Any:
    (code,) = re.findall(r"^```python decoder\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/method.md", "exec"), names)
    return names


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("block", [1, 4])
def test_any_draft_gives_the_synchronous_text(page: Any, temperature: float, block: int) -> None:
    target = model(1, 2.0)
    for seed in range(8):
        rule = page["rule_of"](seed, temperature)
        text = page["synchronous"](target, rule, 20)
        for draft in (model(2, 2.0), model(1, 1.0), target):
            assert page["speculative"](target, draft, rule, 20, block)[0] == text


def test_a_draft_like_the_target_saves_calls(page: Any) -> None:
    rule = page["rule_of"](3, 1.0)
    target = model(1, 2.0)
    assert page["speculative"](target, target, rule, 20, 4)[1] == 4
    assert page["speculative"](target, model(2, 2.0), rule, 20, 4)[1] > 4
