"""The admin address: health and metrics over HTTP, for probes and scrapers."""
