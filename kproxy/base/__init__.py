"""Errors, terminal output, named files, logs, operating system features, the distribution. Imports no other folder.

errors.py      the tree of exceptions
terminal.py    cleaned output, click groups: `say`, `print_rows`, `LazyGroup`
named_file.py  bounded reading of files that users name: `read_named`, `PathGuard`
logs.py        the log of a process: `log_of_process`
system.py      files and processes; sockets.py: sockets
jars.py        jars from Maven for tests and Spark
cooperative.py yield points of long work
bounded_map.py LRU maps with a maximum of entries or bytes: `BoundedMap`
"""
