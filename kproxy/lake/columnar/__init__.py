"""Columnar path from lines to typed columns: what silver does, in Arrow, inside Spark's Python workers.

Strategy: Spark hands over the lines of a bronze batch, thousands at a time. Arrow's own reader makes columns of them
(`columns.py`), columns become rows of tables (`recipes.py`), and Arrow's own writer makes Parquet files of those
(`task.py`). Everything that costs is compiled code that is there from the first line on, while Spark would make,
compile and warm up code of its own for each of these wide tables. Nothing here needs Spark but `task.py`, so all of it
is tested without.
"""
