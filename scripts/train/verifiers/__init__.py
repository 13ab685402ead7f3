"""Verifiers of drafted tokens."""
