"""Runs `retrieval.following` with a side's embedders.

`python -m dragonrt.node.process.following [LIBRARY]`, where LIBRARY is llama.cpp's.
"""

import sys
from functools import partial
from pathlib import Path

from dragonrt.backends.llama_cpp.embedder import load_embedder
from retrieval.following import main

if __name__ == "__main__":
    main(partial(load_embedder, library=next(map(Path, sys.argv[1:]), None)))
