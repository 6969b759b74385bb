"""The report: all answers on one HTML page, and their headlines on a terminal.

Words: a *section* is one answer as it is shown; a *headline* is what of it everybody should know, with a number; rows
*left out* are those beyond the first so many.
"""
