"""Columns of a `REQUEST_EVENT` from the fields of a request and of its response.

`column_fields.py` holds the tables by field name. `topics.py` reads topics and partitions, `resources.py` and
`details.py` what is no topic. Entities and their errors are found by `protocol/shapes.yaml`, as rules do; so a new API
needs a line there, and one here only for what it alone has.
"""
