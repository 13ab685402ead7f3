"""Quantize-Sample-and-Verify (arXiv 2507.00605)."""
