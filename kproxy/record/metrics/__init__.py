"""Metrics by topic, client, principal and group: names with series, counters, and the workers' totals."""
