"""What passes on a connection, seen from beside: exchanges as the client sees them, live or from a capture.

Words: a *watcher* is told every byte from and to one client, in order, and changes nothing; what it makes of them are
*exchanges seen*, each a request with its response or with none. How much of a frame is kept depends on who wants it
(`Depth`): nothing, the rows of a summary, a *sketch* (all fields, and of record batches their headers only), or all.
A watcher never raises for what the bytes hold: what it cannot read it counts, and says so in what it makes.
"""
