"""Rewrites of frames: brokers' addresses become the proxy's, names and versions those that the client may know."""
