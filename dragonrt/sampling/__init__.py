"""Keyed noise, sampling parameters, and the rules by which two sides decide one token."""
