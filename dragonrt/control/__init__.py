"""Choose the length and lattice resolution of each block, and which side decides each token."""
