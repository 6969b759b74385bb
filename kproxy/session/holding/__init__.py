"""Frames that rules hold, until time is over or somebody has decided what becomes of them.

desk.py    all of one process: what may be held, what is, and how what was went
held.py    one of them, and the decisions about it
edit.py    fields and records of a message with other values, checked against the protocol's table
"""
