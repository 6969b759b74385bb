"""Kafka for tests: a mock cluster, real brokers, and kproxy as a process or in a thread. May import all but `cli`.

Entry points: *pytest_plugin*: the fixture `kproxy` of the extra `pytest` · *plugin*: fixtures for kproxy's own tests ·
*kafka*: a cluster of real brokers · *cluster*: librdkafka's mock cluster · *process*: `kproxy run` as a child process.

Parts of the fixture: *embedded*: kproxy in a thread · *inject*, *injected*, *rule_arguments*: rules of a test ·
*recorder*: tape of frames · *exchanges*: its requests with responses · *verification*: guarantees on the tape ·
*time_limit*: watchdog · *mock_rules*: corrections of the mock cluster. For other languages: `front` in *embedded*.
Raw requests without a client library: *one_request*. *explore*: search for the fault that breaks a test.
"""
