"""Filter language for exchanges: parsed, checked, printed.

`fields`: table of fields with long names and short forms · `kinds`: types of values, with operators · `parse`: tokens,
claims (field, operator, value) and the tree · `evaluate`: trees as functions · `record_fields`: fields of one record.
`kproxy.record.filters` evaluates filters of exchanges.

Imports: values, protocol.
"""
