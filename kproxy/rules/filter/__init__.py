"""Text of filters of exchanges: read, checked, and written again.

Words: a *field* is one thing to ask of an exchange, with a long name and perhaps a short form (`fields.py`, the table
that parser and help share); a *kind* knows how the values of a field are written and compared; a *claim* is a field,
an operator and a value. A filter is a tree of claims; what asks them of exchanges is `kproxy.record.filter`.
"""
