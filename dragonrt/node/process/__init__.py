"""One process: its settings, model, documents, index, and how it ends."""
