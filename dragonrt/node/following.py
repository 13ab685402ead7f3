"""Runs `retrieval.following` with the side's embedders: `python -m dragonrt.node.following`."""

from dragonrt.backends.llama_cpp.embedder import load_embedder
from retrieval.following import main

if __name__ == "__main__":
    main(load_embedder)
