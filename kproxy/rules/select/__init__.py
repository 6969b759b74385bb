"""Selectors: which connections, frames and entities a rule is for."""
