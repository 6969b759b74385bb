"""Errors, terminal text, named files, logs and what the operating system offers. Imports nothing of kproxy."""
