"""Worker processes that carry the traffic, and the supervisor that starts them.

supervisor    the process that the user has started: it accepts clients, and owns the singletons
worker        a process that serves connections; identified by its index, 0 and up
pool          all workers as the supervisor sees them, over their restarts
dispatcher    the part of the supervisor that chooses a worker for each client
channel       remote calls between the two, both ways (`runtime.io.channel`)
hand-over     an accepted connection on its way from the supervisor to a worker
"""
