"""Engine arguments of vLLM from options, `name=value`: the value is JSON or a text."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from dragonrt.errors import ModelError

OURS = frozenset(
    {"model", "dtype", "tokenizer", "skip_tokenizer_init", "enable_prefix_caching"}
    | {"logits_processors", "worker_extension_cls", "runner", "speculative_config"}
)
"""What a side sets itself, or cannot work with."""


def read_options(options: Sequence[str], known: Collection[str]) -> dict[str, Any]:
    """Return the engine arguments. Raises ModelError for one that is not `known`, or is OURS."""
    found: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise ModelError(f"--engine-option {option}: write it as name=value")
        if name in OURS or name not in known:
            why = "this side sets it" if name in OURS else "vLLM has no such engine argument"
            raise ModelError(f"--engine-option {name}: {why}")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found
