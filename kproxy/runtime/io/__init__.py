"""Event loop of the data plane: the reactor with its timers, and work that takes turns in it."""
