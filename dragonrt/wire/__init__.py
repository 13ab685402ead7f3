"""The protocol between device and cloud without any I/O: bytes to messages, and back.

`connection` is the state machine that a transport drives, `messages` are its events. `encoding` is
the layer between, with the types of `fields`; `reasons` has the errors.
"""
