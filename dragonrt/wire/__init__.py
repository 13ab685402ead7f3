"""Bytes in, messages out, and back: the protocol between the two sides, without any I/O.

`connection` is the state machine that a transport feeds; `messages` is what comes out of it;
`encoding`, `frames` and `fields` are the layers between; `errors` is what can go wrong.
"""
