"""DRAGON (arXiv 2504.11197)."""
