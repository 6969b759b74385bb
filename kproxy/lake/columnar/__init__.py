"""Conversion of event lines into typed columns, in Arrow, inside Spark's Python workers.

Spark passes the lines of a bronze batch in blocks of thousands. `columns.py` parses them and builds the rows of
tables. `task.py` writes Parquet files. Arrow's code is compiled already; Spark would generate and compile code for
each of these wide tables. Only `task.py` needs Spark.
"""
