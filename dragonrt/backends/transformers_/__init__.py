"""Decoder-only models of a directory or the hub, on CPU, CUDA or MPS, by transformers' forward."""
