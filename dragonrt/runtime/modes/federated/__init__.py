"""Federated inference (SPEC 3): a coordinator drafts, several workers verify together.

The coordinator broadcasts each block; every worker uploads its distributions of all positions from
one forward, truncated to the top K; their mixture decides. The target is the mixture of what the
uploads are reconstructed to, and it is sampled exactly.
"""
