"""Differences between systems: what only Linux has, or Windows lacks, asked for here by its presence and nowhere else.

Who carries traffic for others runs Linux; tests and development run on macOS and Windows, too. Nothing here looks at
the name of a system where it can look for the thing itself.
"""
