"""One language to say which exchanges are meant: while they pass, in captures, and in recorded events.

    wanted = Filter('api == Produce and topic ~ "^orders" and latency > 200ms')     # ~k produce ~t ^orders ~lat > 200ms
    wanted.holds(view)

Words: a *field* is one thing to ask of an exchange, with a long name and perhaps a short form (`fields.py`, the table
that parser and help share); a *kind* knows how the values of a field are written and compared; a *claim* is a field,
an operator and a value; a *view* is what a filter sees of an exchange, live or recorded. A filter is a tree of claims,
made into a function once; text of a user is never run.
"""
