"""Explanation of what rules would do to one frame."""
