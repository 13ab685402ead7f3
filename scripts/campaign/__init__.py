"""Faulty runs in virtual time, and what must hold in each."""
