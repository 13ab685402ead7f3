"""Types of events, the trace file, and folds over records."""
