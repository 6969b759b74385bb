"""Filter language for exchanges: parsed, checked, printed.

`fields`: table of fields with long names and short forms · `kinds`: types of values, with operators · `parse`: tokens,
claims (field, operator, value) and the tree. `kproxy.record.filters` evaluates filters.

Imports: select, values.
"""
