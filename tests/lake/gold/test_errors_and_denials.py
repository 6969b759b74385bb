"""What went wrong, and who was refused."""


def test_errors_are_told_by_kind_and_by_what_they_are_of(answer):
    """Requests, partitions and connections stand in rows of their own; requests that were cut off are told, too."""
    rows = answer(
        "errors_and_denials",
        requests=[
            {"api": "Produce", "error": "TOPIC_AUTHORIZATION_FAILED", "client_id": "a", "responder": "broker"},
            {"api": "Produce", "error": "TOPIC_AUTHORIZATION_FAILED", "client_id": "a", "responder": "kproxy"},
            {
                "api": "Produce",
                "error": "THROTTLING_QUOTA_EXCEEDED",
                "client_id": "a",
                "responder": "broker",
                "kproxy_errors": ["THROTTLING_QUOTA_EXCEEDED"],
            },
            {"api": "Fetch", "outcome": "unanswered", "client_id": "a", "count": 3},
            {"api": "Fetch", "outcome": "answered", "client_id": "a"},
            {"api": "SaslAuthenticate", "error": "SASL_AUTHENTICATION_FAILED", "client_id": "b"},
        ],
        produce_partitions=[
            {"api": "Produce", "topic": "t", "partition": n, "error": "TOPIC_AUTHORIZATION_FAILED", "client_id": "a"}
            for n in range(5)
        ],
        fetch_partitions=[
            {
                "api": "ShareFetch",
                "topic": "t",
                "error": "UNKNOWN_TOPIC_OR_PARTITION",
                "count": 4,
                "error_by": "kproxy",
            },
            {"api": "Fetch", "topic": "t", "records": 1},
        ],
        commits=[{"api": "OffsetCommit", "topic": "t", "partition": 0, "error": "ILLEGAL_GENERATION"}],
        connections=[
            {"action": "authentication", "error": "SASL_AUTHENTICATION_FAILED", "client_address": "10.0.0.9"},
            {"action": "authentication", "client_address": "10.0.0.9"},
            {"action": "open"},
        ],
    )

    names = ("kind", "scope", "api", "error", "responder", "topic", "count")
    assert {
        ("authorization", "request", "Produce", "TOPIC_AUTHORIZATION_FAILED", "broker", None, 1),
        ("authorization", "request", "Produce", "TOPIC_AUTHORIZATION_FAILED", "kproxy", None, 1),
        ("authorization", "partition", "Produce", "TOPIC_AUTHORIZATION_FAILED", "broker", "t", 5),
        ("other", "request", "Produce", "THROTTLING_QUOTA_EXCEEDED", "kproxy", None, 1),
        ("cut off", "request", "Fetch", "unanswered", None, None, 3),
        ("authentication", "request", "SaslAuthenticate", "SASL_AUTHENTICATION_FAILED", "broker", None, 1),
        ("authentication", "connection", None, "SASL_AUTHENTICATION_FAILED", None, None, 1),
        ("other", "partition", "ShareFetch", "UNKNOWN_TOPIC_OR_PARTITION", "kproxy", "t", 4),
        ("other", "partition", "OffsetCommit", "ILLEGAL_GENERATION", "broker", "t", 1),
    } == {tuple(row.get(name) for name in names) for row in rows}
