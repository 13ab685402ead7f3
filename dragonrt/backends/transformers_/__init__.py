"""Run decoder-only models of a directory or the hub with transformers, on CPU, CUDA or MPS."""
