"""The report: all answers on one HTML page, and their headlines on a terminal.

Words: a *section* shows one answer; a *headline* is a number of an answer with its text; rows *left out* are those
beyond the section's row limit.
"""
