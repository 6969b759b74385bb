"""Quotas: limits, the buckets that keep them, and what happens to a client that is above one."""
