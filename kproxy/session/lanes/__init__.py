"""The two directions of a connection: each lane splits bytes into frames, and passes, edits or answers them.

Entry point: `pair.LanePair`. `request` and `response` build on `request_rules`, `response_rules`, `request_scan`,
`lane`, `assembler` and `host`.
"""
