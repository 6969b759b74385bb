"""Documents that users write: read with the place of every value, checked, explained."""
