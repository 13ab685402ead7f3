"""Sparsify-Quantize-Sample."""
