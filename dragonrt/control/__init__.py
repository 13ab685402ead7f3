"""Choose lengths and lattice resolutions of blocks, and by measured delays which side decides."""
