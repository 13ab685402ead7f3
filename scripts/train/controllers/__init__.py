"""Controllers of drafted blocks."""
