"""GGUF files as a source of weights."""
