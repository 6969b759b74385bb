"""Connections to brokers: clusters and their nodes, DNS look-ups, connect races, and kproxy's own requests."""
