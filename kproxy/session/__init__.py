"""One client connection with its broker connection as a state machine without I/O: bytes and times in, bytes and
commands out. It imports rules, protocol and base. Entry points: `session.Session`, `commands`, `plan.Plan`.

session, logins, sasl_server    the session; logins at the broker and at kproxy
lanes                           the two directions of a connection
live, telemetry                 evaluation of live rules; client metrics (KIP-714)
session_state, shared           state of a connection; state of a cluster
frame, inflight, held_frames    views and dispositions of frames; requests in flight; frames that rules hold
plan                            how deep frames of one (api, version) are decoded
rule_program, literal_search    compiled rules, and the search for those that can match a frame
rewrite, respond                edits of frames; responses with errors
sasl, fetch_sessions, cluster   identity and login frames; fetch and share sessions; topics of the cluster
"""
