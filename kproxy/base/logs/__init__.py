"""Logging of a process: its format, and the thread that writes the lines."""
