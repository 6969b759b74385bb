"""Rules played over recorded exchanges."""
