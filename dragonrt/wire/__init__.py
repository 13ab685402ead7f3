"""Bytes in, messages out, and back: the protocol between the two sides, without any I/O.

`connection` is the state machine that a transport drives, `messages` are its events. `encoding` is
the layer between, with the types of `fields`; `reasons` has the errors.
"""
