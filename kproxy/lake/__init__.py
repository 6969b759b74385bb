"""Pipeline that turns months of events and captures into answers, with Spark.

Words: *bronze* contains the lines as written; *silver* is typed, one table per kind of event; *gold* contains the
answers. A *job* connects a source, transforms and tables. A *transform* is a pure function from DataFrames to a
DataFrame.
"""
