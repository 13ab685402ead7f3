"""Peers, hosts and addresses: who is connected, and who may be."""
