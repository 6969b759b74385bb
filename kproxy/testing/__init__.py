"""Kafka to test against: a mock cluster in this process, real brokers from published jars, and kproxy in front of them,
as a process or in a thread.

*jars*: the folder with Apache Kafka's published jars, fetched once · *broker*: one Kafka process ·
*cluster*: several of them, or librdkafka's mock · *proxy*: a running `kproxy run`.
For the public pytest plugin: *embedded*: kproxy in a thread · *recorder*: what clients and kproxy said to each other ·
*exchange*: a request of it with its response · *injected*: a rule that a test has put in ·
*failure_report*: why a rule did nothing.
"""
