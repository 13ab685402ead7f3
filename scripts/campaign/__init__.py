"""Simulated runs with faults, in virtual time, and the invariants that must hold in each."""
