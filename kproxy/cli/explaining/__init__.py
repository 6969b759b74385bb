"""What `kproxy explain` finds out.

*target*: an API and version, or a frame · *opinion*: what one rule makes of it, and why
"""
