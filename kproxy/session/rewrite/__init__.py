"""Edits of frames: advertised addresses, names, racks and API versions. Entry point: `rewriter.Rewriter`.

`context` has the state of one connection's rewrites. It imports nothing of the session but `counters`.
"""
