"""Policies: block length and resolution, aggregator, and what they are estimated from."""
