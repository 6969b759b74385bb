"""Replay of recorded traffic: the requests to a broker (`--to`), or the responses to a client (`--serve`).

Words: a *recording* is what a capture holds, as exchanges in the order in which their requests came; a *line* is one
recorded connection; a *link* is a connection of the replay to the target; the *target* is the cluster that requests go
to; a *fix* changes what a recorded request says about the recorded cluster into what it has to say to the target, and
learns from the target's responses how to; a *responder* answers a client from a recording. Players and responders are
pure state machines: frames and times in, commands out. Only `sockets.py` has sockets.
"""
