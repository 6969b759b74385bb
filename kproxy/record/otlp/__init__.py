"""OTLP over HTTP: kproxy's metrics, events and traces for an OpenTelemetry collector."""
