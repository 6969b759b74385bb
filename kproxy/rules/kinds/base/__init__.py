"""Base classes of rule kinds, and code that several kinds share."""
