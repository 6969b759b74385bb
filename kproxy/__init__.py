"""kproxy: a transparent proxy for Kafka's wire protocol."""
