"""Rehearsal of candidate rules on recorded traffic: what would they have done?

Words: a *rehearsal* is one recorded connection led through a session that has the candidate rules; nothing is sent
anywhere, and times are those of the recording. What the rules add to a time (a delay, a throttle) is added, what the
client and the broker would have done otherwise is not known, and not guessed: see `rehearsal.py`.
"""
