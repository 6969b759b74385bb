"""Ways out to brokers: clusters with their nodes, names looked up, connects that race, and requests of kproxy's own."""
