"""Noise keyed by seed and step, samplers, and rules by which two sides decide one token."""
