"""Pipeline that turns months of events and captures into answers, with Spark.

Words: *bronze* is what was written, line by line; *silver* is typed, one table per kind of thing; *gold* are answers. A
*job* wires a source, transforms and tables together; a *transform* is a pure function from DataFrames to DataFrame.
"""
