"""Worker processes: several that carry the traffic, and the one that starts them.

supervisor    the process that the user has started: it accepts clients, and owns what there can be one of only
worker        a process that serves connections; told from the others by its index, 0 and up
member        a worker as the supervisor sees it, over its restarts
channel       messages between the two, both ways
hand-over     an accepted connection on its way from the supervisor to a worker
"""
