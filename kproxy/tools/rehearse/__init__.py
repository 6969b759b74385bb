"""Offline evaluation of rules, without sockets: explain, rule tests and what-if."""
