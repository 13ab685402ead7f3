"""Tests that run in virtual time."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from dragonrt.testing.loop import run

P = ParamSpec("P")


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in a loop whose waits take no time."""

    @functools.wraps(test)
    def running(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return running
