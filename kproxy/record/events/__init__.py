"""Declarations of the events that kproxy records: every event type and every column, once.

Words: an *event* is one JSON line, a CloudEvents 1.0 envelope with flat `data`; its *type* names what its columns mean
and ends in a version; a *column* has a type, a unit, a meaning, and the version of kproxy since which it is there.
Columns are only ever added. From the declarations come the writer, JSON Schema, Spark's schema and the reference page.
"""
