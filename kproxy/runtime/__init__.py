"""Sockets, TLS and timers: what moves the bytes of a session.

Words: the *reactor* calls back when a socket is ready · a *side* is one socket of a connection, to the client or to the
broker · a side is *muted* while there is a reason not to read it · a *connection* drives one session with its two sides
· a *listener* is what the config calls so, with one *port* for bootstrap and one for each node · an *upstream* is a
cluster as something to connect to · a *race* is several connects of which the first to succeed wins.
"""
