"""Explanation of the effects of rules on one frame."""
