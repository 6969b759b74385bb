"""Declarations of the events that kproxy records: every event type and every column, once.

Terms: an *event* is one JSON line, a CloudEvents 1.0 envelope with flat `data`. Its *type* defines the meaning of its
columns and ends in a version. A *column* has a type, a unit, a meaning, and the version of kproxy that introduced it.
Columns are only ever added. From the declarations come the writer, JSON Schema, Spark's schema and the reference page.
"""
