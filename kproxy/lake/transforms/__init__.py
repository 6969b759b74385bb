"""Pure functions from DataFrames to DataFrame: no IO, no session, explicit columns."""
