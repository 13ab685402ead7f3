"""Ctrl-C at an update in a real process: what was finished is there for the next one."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from retrieval import Embedder, Index

FILES, LONG = 4, 150
"""Files of one chunk, and chunks of a file behind them."""

UPDATE = """
import sys
from pathlib import Path
import numpy as np
from retrieval import Embedder, Index

where, documents, stop = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def pause(at):
    if at == stop:
        print("here", flush=True)
        sys.stdin.read()

def encode(texts):
    pause(f"embedding {texts[0].split()[-1].strip('.')}")
    return np.ones((len(texts), 4), dtype=np.float32)

files = set()

def progress(now):
    files.add(now.file)
    pause(f"read {len(files)}")

embedder = Embedder("fake", "fake-1", encode, encode)
try:
    Index.update(where, documents, embedder, words=4, progress=progress)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
@pytest.mark.parametrize(
    ("stop", "embedded"),
    [
        ("embedding 2", 2),
        ("read 3", 3),
        ("embedding c64", FILES + 64),  # in the middle of a long file
    ],
)
def test_an_interrupt_loses_nothing_that_was_finished(
    tmp_path: Path, stop: str, embedded: int
) -> None:
    where, documents = tmp_path / "index", tmp_path / "documents"
    documents.mkdir()
    for number in range(FILES):
        (documents / f"a{number}.txt").write_text(f"A short file {number}")
    (documents / "b.txt").write_text("".join(f"It goes on c{n}.\n\n" for n in range(LONG)))
    with subprocess.Popen(
        [sys.executable, "-c", UPDATE, str(where), str(documents), stop],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130

    def ones(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.ones((len(texts), 4), dtype=np.float32)

    report = Index.update(where, documents, Embedder("fake", "fake-1", ones, ones), words=4)
    assert report.chunks == FILES + LONG
    assert report.embedded == report.chunks - embedded
