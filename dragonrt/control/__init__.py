"""Policies: block length and resolution, aggregator, branches, and what they are estimated from."""
