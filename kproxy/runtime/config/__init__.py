"""Settings of clusters, listeners and limits in the config document."""
