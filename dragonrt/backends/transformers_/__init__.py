"""Decoder-only models through the forward of transformers."""
