"""Sinks of what was seen: metrics, the audit, captures and the lines of `kproxy tail`."""
