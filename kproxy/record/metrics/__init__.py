"""Metrics by topic, client, principal and group: which names have series, what is counted, and what workers tell."""
