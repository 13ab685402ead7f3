"""Benchmarks on real models, processes and clocks; each prints a table and one line of JSON."""
