"""Run one answer on the device or the cloud, and find the sources of its text."""
