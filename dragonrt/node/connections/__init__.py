"""Connections between sides: addresses, dialling, admission to a cloud, and the protocol's pump."""
