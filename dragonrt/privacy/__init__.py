"""What leaves the device beside the question, what that reveals, and what the link shows of it.

    documents -> predictions -> drafts -> decision -> Draft, Target -> frames -> link
                                  |          |             |             |         |
    evidence    bits of each file-+----------+             |             |         |
    guards      rulings on decided tokens ---+             |             |         |
    redaction   what the cloud reads --------+-------------+             |         |
    disclosure  messages that a level admits --------------+             |         |
    wire.padding    frames of four sizes --------------------------------+         |
    constant_rate   one frame at every tick ---------------------------------------+
    traces.ledger   what left in one answer: a fold over its records

The left five are pure and stand below the modes, which hold them as objects. `constant_rate` runs
on the event loop and is held by the connection's peer. A frame of padding is part of the protocol,
so its format stays in `wire`.
"""
