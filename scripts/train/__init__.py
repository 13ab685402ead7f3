"""What trained the bundled networks."""
