"""SPRINTER."""
