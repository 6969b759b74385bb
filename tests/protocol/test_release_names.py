"""Kafka releases as users write them."""

from __future__ import annotations

import pytest

from kproxy.protocol.table.releases import RELEASES, parse_release


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_is_known_by_its_name(release: str) -> None:
    """Also with a patch number, an x for it, or a v in front."""
    assert {parse_release(text) for text in (release, f"v{release}", f"{release}.1", f" {release}.x ")} == {release}


@pytest.mark.parametrize(
    ("text", "release"),
    [("0.11", "0.11.0"), ("0.10.2.1", "0.10.2"), ("4.1.0-SNAPSHOT", "4.1"), ("4.2.0-rc1", "4.2"), ("2.8.*", "2.8")],
)
def test_other_spellings(text: str, release: str) -> None:
    """Old releases have three numbers; candidates and snapshots are of their release."""
    assert parse_release(text) == release


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2.9", 'no Kafka release 2.9 is known, nearest is "2.8"; known are 0.10.0 to 4.4'),
        ("5.0", 'no Kafka release 5.0 is known, nearest is "4.4"; known are 0.10.0 to 4.4'),
        ("3", '"3" may be any of 3.0, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6, 3.7, 3.8, 3.9'),
        ("0.10", '"0.10" may be any of 0.10.0, 0.10.1, 0.10.2'),
        ("0.9.0", 'brokers of Kafka 0.9.0 do not support ApiVersions, the oldest release with it is "0.10.0"'),
        ("newest", 'expected a Kafka release such as 4.4, got text "newest"'),
        ("", 'expected a Kafka release such as 4.4, got text ""'),
    ],
)
def test_what_is_no_release(text: str, message: str) -> None:
    """The nearest one is named."""
    with pytest.raises(ValueError) as caught:
        parse_release(text)

    assert str(caught.value) == message
