"""The audit: events of the traffic, and the outlets that write them.

An *event* is `(type name, time, data)` of kproxy/record/events/schema.py; a *line* is it as one JSON object. An
*outlet* is a place that lines go to: files, or a Kafka topic. *Durable* is a line that a kill or a power cut can no
longer take away: synced to disk, or acknowledged by all brokers. A *gap* is what could not be written; it is counted
and reported in an `audit_gap` event. An *outage* is the time from the first refusal of the disk or the cluster until it
takes lines again.
"""
