"""One client connection with its broker connection, as a pure state machine: bytes and times in, bytes and
commands out.

Words: a *lane* is one direction of a connection; a *step* says how deep to look at one (api, version); an entry *in
flight* is a request that was forwarded and whose response is awaited; a *held frame* is kept back until it is whole.
"""
