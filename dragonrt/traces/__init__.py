"""The events of a trace, the trace file, and the counts and reports that are computed from it."""
