"""Replay of recorded traffic: the requests to a broker (`--to`), or the responses to a client (`--serve`).

Words: a *recording* has the exchanges of a capture in the order of their requests; a *line* is one recorded connection;
a *link* is a connection of the replay to the target; the *target* is the cluster that requests go to; a *fix* rewrites
references to the recorded cluster in a recorded request for the target, and learns the new values from the target's
responses; a *responder* answers a client from a recording. Players and responders are pure state machines: frames and
times in, commands out. Only `sockets.py` has sockets.
"""
