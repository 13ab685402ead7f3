"""Streams of bytes between the two sides, and slower links that are emulated on them.

`stream` has the interface and TCP. `tls`, `encryption` and `shared_key` protect a stream. `models`,
`profile` and `emulation` delay it as a slower link would.
"""
