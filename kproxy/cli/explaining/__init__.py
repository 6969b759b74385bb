"""Findings of `kproxy explain`, without the command itself.

*target*: a request, as a frame or as an API and version · *opinion*: what one rule does with it, and why · *survey*:
the opinions of all rules about one target
"""
