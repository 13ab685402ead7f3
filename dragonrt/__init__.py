"""dragonrt: two peers, each with its own documents, answer one question together."""

__version__ = "0.1.0"
