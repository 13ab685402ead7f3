"""Choose block lengths, resolutions and aggregators, and estimate the delays they depend on."""
