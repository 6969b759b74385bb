"""Sockets of connections: their two sides, plain or in TLS, and how bytes are read, shaped, spliced and sent."""
