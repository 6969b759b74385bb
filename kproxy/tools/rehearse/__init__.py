"""What a rule would do: explain, rule tests and what-if, without a socket."""
