"""YAML text read into checked values: the tree with lines and columns, settings, quantities, addresses, TLS.

Imports: protocol, base. Entry points: `read_source`, `Model`, `parse_duration`, `Address`.
"""
