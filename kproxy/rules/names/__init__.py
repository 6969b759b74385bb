"""Name mappings: client-side names to broker-side ones and back, made of the rules that rename."""
