"""Rehearsal of candidate rules on recorded traffic: the effects that they would have had.

Words: a *rehearsal* runs one recorded connection through a session with the candidate rules. Nothing is sent, and times
are those of the recording. Times that rules add (a delay, a throttle) are added. Different behaviour of the client and
the broker is unknown and not simulated: see `rehearsal.py`.
"""
