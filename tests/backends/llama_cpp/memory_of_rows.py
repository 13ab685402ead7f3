"""Opens, reads and drops rows in a process of their own; prints what happened as JSON.

Arguments: the name of a function here, a model's file, and a number of bytes.
"""

import json
import random
import resource
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.backend import Feed, Preemption
from dragonrt.backends.llama_cpp.backend import LlamaBackend, LlamaRows, load_model
from dragonrt.errors import DragonError, ModelError
from dragonrt.wire.reasons import BusyError

Numbers = NDArray[np.float32]

QUESTIONS, WORDS, OPEN, PIECE, TOKENS_A_WORD = 40, 2000, 8, 24, 1.4


def memory(name: str) -> int:
    """A number of this process' status, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def forward(
    on: LlamaBackend, rows: LlamaRows, size: int, stop: Preemption | None = None
) -> Numbers:
    """Some log-probabilities after each of so many tokens; none if it is stopped."""
    feed = Feed(rows, [*range(5, 5 + size)], 0, True, stop or Preemption(), False)
    (found,) = on.forward([feed])
    return np.array([each.log_probabilities(np.arange(99)) for each in found or ()])


def bounded(on: LlamaBackend, bound: int) -> dict[str, float]:
    """Open rows of up to so many words; of their memory return the part that was taken."""
    chance, stopped = random.Random(1), Preemption()
    stopped.request()
    document = on.open([on.empty()], 200)
    forward(on, document, PIECE)
    stored = document.document(0, PIECE)
    del document
    idle = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    on.pool.limit = bound
    opened: list[tuple[LlamaRows, Numbers]] = []
    waited = refused = 0
    for words in [WORDS, *(chance.randint(1, WORDS) for _ in range(QUESTIONS - 1))]:
        count, capacity, rows = chance.randint(1, 3), int(TOKENS_A_WORD * words) + 200, None
        capacity = min(capacity, on.info.context_length - PIECE)
        while rows is None:
            try:
                rows = on.open([stored] * count, capacity)
            except BusyError:
                if not opened:
                    raise
                waited += 1
                opened.pop(0)
            except ModelError:
                break
        if rows is None:
            refused += 1
            continue
        opened = [*opened, (rows, forward(on, rows, PIECE))][-OPEN:]
        for number in (0, -1):
            assert not forward(on, opened[number][0], PIECE, stopped).size
            np.testing.assert_array_equal(forward(on, opened[number][0], 4), opened[number][1][:4])
    return {"taken": (memory("VmHWM") - idle) / bound, "waited": waited, "refused": refused}


def starved(on: LlamaBackend, free: int) -> dict[str, float]:
    """Open rows until this process has no more addresses; return how many others it kept."""
    opened = [on.open([on.empty()] * 2, 20) for _ in range(4)]
    wanted = [forward(on, rows, 4) for rows in opened]
    limit = memory("VmSize") + free
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    taken: list[LlamaRows] = []
    try:
        while True:
            taken.append(on.open([on.empty()] * 16, on.info.context_length))
    except DragonError:
        made = len(taken)
        taken.clear()
    kept = [
        np.array_equal(forward(on, rows, 4), was) for rows, was in zip(opened, wanted, strict=True)
    ]
    return {"made": made, "kept": sum(kept)}


if __name__ == "__main__":
    loaded = load_model(Path(sys.argv[2]), threads=1)
    print(json.dumps(globals()[sys.argv[1]](loaded, int(sys.argv[3]))))
