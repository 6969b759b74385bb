"""The two directions of a connection, as lanes: split bytes into frames, and pass, edit or answer them.

pair                             entry point: `LanePair`
request, response                stages of a frame that is not passed unread
request_rules, response_rules    live rules of a lane
request_scan, response_scan      loop over the frames of a read
lane, assembler                  base of both directions: dispositions, waiting frames
tail_stream                      long responses, rewritten at their tail
services                         services of the session for lanes: engine, lookups
"""
