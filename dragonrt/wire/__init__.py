"""Bytes in, messages out, and back: the protocol between the two sides, without any I/O.

`connection` is the state machine that a transport drives, `messages` are its events. `encoding`,
`frames` and `fields` are the layers between; `reasons` has the errors.
"""
