"""SpecFed."""
