"""Transforms of gold tables: one file for each family of tables, pure functions on silver DataFrames.

An aggregate (`aggregates.py`) is silver summed as finely as several tables need, so each silver table is read once.
`daily` makes a partial, the sums of one day, from aggregates. Partials of any days merge in any order, with the result
of a single pass over these days. `combine` makes the table from its partials.
"""
