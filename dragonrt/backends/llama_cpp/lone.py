"""Find the tokens that llama.cpp computes alone: one token of one row.

Flash attention on CPUs has a kernel of its own for them. If a row is long (512 padded cells), it
divides the KV among the threads (`use_split_kv_path` in ggml-cpu/ops.cpp), and the last bits depend
on their number. Every other forward has the same bits on any number of threads.
"""

from collections.abc import Sequence


def lone_places(sequences: Sequence[int]) -> list[int]:
    """Return the places in a batch of the tokens that are computed alone, at most one a sequence.

    `sequences` has the sequence of each token. llama.cpp divides a batch into parts of equally many
    tokens of sequences whose numbers follow each other (`llama_batch_allocr::split_equal`). Only
    the last token of a sequence can be alone.
    """
    left: dict[int, list[int]] = {}
    for place, sequence in enumerate(sequences):
        left.setdefault(sequence, []).append(place)
    alone = []
    while left:
        first = min(left, key=lambda sequence: left[sequence][0])
        chosen = [first]
        for place in sorted(place for places in left.values() for place in places):
            if sequences[place] == chosen[-1] + 1:
                chosen.append(sequences[place])
        size = min(len(left[sequence]) for sequence in chosen)
        if len(chosen) == size == 1:
            alone.append(left[first][0])
        for sequence in chosen:
            del left[sequence][:size]
            if not left[sequence]:
                del left[sequence]
    return alone
