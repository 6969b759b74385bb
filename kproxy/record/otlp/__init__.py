"""OTLP: what kproxy counts, records and sees, for an OpenTelemetry collector, over HTTP."""
