"""Observes what passes on a connection, and changes nothing: exchanges as the client sees them, live or from a capture.

An *observer* is given every byte from and to one client, in order, and makes *exchanges* of them, each a request with
its response or with none. How much of a frame is kept depends on who wants it (`Depth`): nothing, the rows of a
summary, a *sketch* (all fields, and of record batches their headers only), or all. An observer never raises for any
bytes: it counts unreadable frames and stores the reason in their exchanges.
"""
