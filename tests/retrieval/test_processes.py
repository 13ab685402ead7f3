"""Two processes read an index while a third updates it."""

import sys
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from retrieval import Embedder, Index

READER = """
import sys
from pathlib import Path
import numpy as np
from retrieval import Index

where = Path(sys.argv[1])
vector = np.full(64, 0.125, dtype=np.float32)
last = None
while True:
    index = Index.open(where)
    versions = {hit.chunk.text.split(":")[0] for hit in index.search(vector, 100)}
    assert len(versions) == 1 and len(index) == 20, (versions, len(index))
    if versions != last:
        last = versions
        print(*versions, flush=True)
"""


@pytest.mark.slow
def test_readers_see_one_snapshot_or_the_other(tmp_path: Path, embedder: Embedder) -> None:
    documents, where = tmp_path / "documents", tmp_path / "index"
    documents.mkdir()

    def update(version: int) -> None:
        for i in range(20):
            (documents / f"{i}.txt").write_text(f"v{version}: document {i}")
        Index.update(where, documents, embedder)

    update(0)
    command = [sys.executable, "-c", READER, str(where)]
    with ExitStack() as stack:
        outputs = []
        for _ in range(2):
            reader = stack.enter_context(Popen(command, stdout=PIPE, text=True))
            stack.callback(reader.kill)
            assert reader.stdout is not None
            outputs.append(reader.stdout)
        for version in range(5):
            # Both go on reading without a pause, also while the next update is written.
            assert [output.readline() for output in outputs] == [f"v{version}\n"] * 2
            update(version + 1)
