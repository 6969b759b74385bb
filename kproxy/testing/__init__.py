"""Kafka to test against: a mock cluster in this process, real brokers from published jars, and kproxy in front of them,
as a process or in a thread.

*jars*: the folder with Apache Kafka's published jars, fetched once · *kafka*: a cluster of real brokers ·
*cluster*: librdkafka's mock cluster · *proxy*: a running `kproxy run` · *cases*: tests of rules as documents.
For the public pytest plugin: *embedded*: kproxy in a thread · *recorder*: tape of what clients and kproxy say to each
other · *exchanges*: the requests on it with their responses · *injected*: a rule that a test has put in ·
*failure_report*: why a rule did nothing · *time_limit*: watchdog of a test that waits for a lost response ·
*mock_rules*: rules that kproxy applies in front of librdkafka's mock cluster.
"""
