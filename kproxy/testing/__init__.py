"""Kafka to test against: a mock cluster in this process, real brokers from published jars, and kproxy as a process.

*jars*: the folder with Apache Kafka's published jars, fetched once · *broker*: one Kafka process ·
*cluster*: several of them, or librdkafka's mock · *proxy*: a running `kproxy run`.
"""
