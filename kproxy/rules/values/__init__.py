"""YAML text read into checked values: the tree with lines and columns, settings, quantities, addresses, TLS.

Imports: base. Entry points: `Source`, `Model`, `validate`, `parse_duration`, `Address`.
"""
