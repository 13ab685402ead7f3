"""What carries the bytes between the two sides.

`stream` is the interface and its TCP implementation, `memory` a pair inside one process, `tls` TLS;
`models`, `markov`, `profile` and `emulation` delay a stream as a slower link would; `probe`
estimates round-trip time and bandwidth from what is measured in band.
"""
