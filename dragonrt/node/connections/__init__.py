"""Connections between sides: addresses, dialling, admission to a cloud, sessions and probes."""
