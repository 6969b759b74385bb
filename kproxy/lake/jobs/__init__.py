"""Jobs: each reads with a source or the lake, calls transforms, and writes to the lake.

The commands that start them are in `kproxy/lake/commands`.
"""
