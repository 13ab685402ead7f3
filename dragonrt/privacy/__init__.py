"""Privacy: what leaves the device with a question, what that reveals, and what the link shows.

    documents -> predictions -> drafts -> decision -> Draft, Target -> frames -> link
                                  |          |             |             |         |
    evidence    bits of each file-+----------+             |             |         |
    guards      rulings on decided tokens ---+             |             |         |
    disclosure  what the cloud reads --------+-------------+             |         |
                and messages that a level admits --------------+             |         |
    wire.encoding   frames of four sizes --------------------------------+         |
    constant_rate   one frame at every tick ---------------------------------------+
    traces.counts   what left in one answer: a fold over its records

The upper three are pure; the modes hold them. `constant_rate` runs on the event loop; the
connection's peer holds it. Padded frames are part of the protocol (`wire`), and the ledger is a
fold of `traces`.
"""
