"""Live view of what passes, for people: exchanges that are kept for a while, and the rows and details of them.

Nothing here has a socket or a task: `admin` serves it, and each process that carries traffic has one `ViewWatch`.
"""
