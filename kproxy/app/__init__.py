"""Processes of kproxy: the one that carries traffic alone, and the supervisor with its workers."""
