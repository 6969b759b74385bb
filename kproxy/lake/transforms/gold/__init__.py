"""Transforms of the answers: a file for each family of questions, pure functions on silver DataFrames.

Words: a *base* is silver summed as finely as several answers need, so that each silver table is read once. A *partial*
is an answer's sums of one day, made of bases by `daily`. Partials of any days merge, in any order, into the same rows
that the days in one go would have given (`partial.py`). `combine` makes the answer of partials.
"""
