"""The ways of answering that DRAGON is compared with (SPEC 1.6), on the same models and index.

Some of them send documents or their KV over the wire. That is an experiment and nothing else: they
speak messages of their own with a server of their own, which listens on loopback only. A
`dragonrt cloud` knows none of these messages and hangs up on the first.
"""
