"""Ways in for clients: listeners with their ports, and what is read before a listener is chosen."""
