"""What is known of a connection."""

from __future__ import annotations

from kproxy.rules.exchange import subject_name


def test_a_subject_is_written_as_kafka_does() -> None:
    """Most specific part first, special characters escaped (RFC 4514)."""
    certificate = {
        "subject": (
            (("countryName", "DE"),),
            (("organizationName", "Example, Inc."),),
            (("commonName", "etl"), ("userId", "7")),
        )
    }

    assert subject_name(certificate) == "CN=etl+UID=7,O=Example\\, Inc.,C=DE"


def test_no_certificate_has_no_subject() -> None:
    """getpeercert() gives None, or an empty dict for one that was not checked."""
    assert subject_name(None) is None
    assert subject_name({}) is None
