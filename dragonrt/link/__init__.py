"""Streams of bytes between the two sides.

`stream` is the interface and TCP, `tls` TLS. `models`, `profile` and `emulation` delay a stream as
a slower link would; `emulation` also has a pair inside one process.
"""
