"""Logins on one connection: the client's at the broker, watched; the client's at kproxy; and kproxy's at the broker."""
