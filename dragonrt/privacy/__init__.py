"""Privacy: what leaves the device with a question, what that reveals, and what the link shows.

    documents -> predictions -> drafts -> decision -> Draft, Target -> frames -> link
                                  |          |             |             |         |
    evidence    bits a file adds -+----------+             |             |         |
    guards      whether a token may be sent -+             |             |         |
    disclosure  what the cloud reads --------+-------------+             |         |
                and which messages may be sent ----------------+             |         |
    wire.encoding   frames padded to one of four sizes ------------------+         |
    constant_rate   one frame at every tick ---------------------------------------+
    traces.counts   the ledger: what left with one answer, counted from its trace records

`evidence`, `guards` and `disclosure` are pure and are called by the modes. `constant_rate` runs on
the event loop, once per connection. Padded frames are part of the protocol (`wire`).
"""
