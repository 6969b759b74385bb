"""Live view of the traffic for people: recent exchanges, with their rows and details.

Nothing here has a socket or a task: `admin` serves it, and each process that carries traffic has one `ViewWatch`.
"""
