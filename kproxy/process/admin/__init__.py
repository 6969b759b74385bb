"""The admin API of a proxy with worker processes: the supervisor serves it, and asks the workers."""
