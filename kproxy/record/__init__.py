"""Observation of the traffic and its recordings: metrics, audit, captures, live view and OTLP."""
