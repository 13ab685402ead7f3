"""Streams of bytes between the two sides.

`stream` is the interface and TCP, `memory` a pair inside one process, `tls` TLS. `models`,
`markov`, `profile` and `emulation` delay a stream as a slower link would. `probe` estimates
round-trip time and bandwidth in band.
"""
