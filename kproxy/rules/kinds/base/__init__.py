"""Base classes of kinds, and what several kinds share."""
