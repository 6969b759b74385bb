"""Sockets, TLS and timers: transport of a session.

Words: the *reactor* calls back when a socket is ready · a *side* is one socket of a connection, to the client or to the
broker · a side is *muted* while any reason pauses reads from it · a *connection* drives one session with its two sides
· a *listener* is a listener of the config, with one *port* for bootstrap and one for each node · an *upstream* is a
cluster as something to connect to · a *race* runs several connects in parallel, and the first success wins.
"""
