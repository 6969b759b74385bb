"""The commands of `kproxy audit`, which are those of `python -m kproxy.pipeline`: options in, jobs called, lines out.

Spark is imported inside of them, so that help needs neither Spark nor Java.
"""
