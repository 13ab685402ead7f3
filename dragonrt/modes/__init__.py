"""The ways in which sides work together: state machines without I/O behind one contract."""
