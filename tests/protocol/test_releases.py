"""What brokers of each release have."""

from __future__ import annotations

import pytest

from kproxy.protocol.table import schema
from kproxy.protocol.table.releases import RELEASES, supported


@pytest.mark.parametrize("api", schema.apis(), ids=str)
def test_the_table_names_releases_in_order(api: schema.Api) -> None:
    """Each line of the table is about releases that there are, oldest first, and about versions of the table."""
    for entries in (api.releases, api.previews):
        places = [RELEASES.index(release) for release in entries]
        assert places == sorted(set(places))
        assert all(version in api.versions for versions in entries.values() for version in versions or ())
    assert api.releases


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        (
            "0.10.0",
            {"Produce": (0, 2), "Fetch": (0, 2), "Metadata": (0, 1), "ApiVersions": (0, 0), "CreateTopics": None},
        ),
        ("0.11.0", {"Produce": (0, 3), "InitProducerId": (0, 0), "SaslAuthenticate": None}),
        ("2.4", {"Produce": (0, 8), "Fetch": (0, 11), "ApiVersions": (0, 3), "OffsetDelete": (0, 0)}),
        ("2.8", {"Produce": (0, 9), "Fetch": (0, 12), "Metadata": (0, 11), "ConsumerGroupHeartbeat": None}),
        ("3.9", {"Produce": (0, 11), "Fetch": (0, 17), "ConsumerGroupHeartbeat": (0, 0), "ShareFetch": None}),
        ("4.0", {"Produce": (3, 12), "Fetch": (4, 17), "LeaderAndIsr": None, "ShareFetch": None}),
        (
            "4.1",
            {"OffsetCommit": (2, 9), "ShareFetch": (1, 1), "StreamsGroupHeartbeat": None},
        ),
        ("4.3", {"OffsetCommit": (2, 10), "InitProducerId": (0, 5), "StreamsGroupHeartbeat": (0, 0)}),
    ],
)
def test_what_a_release_has(release: str, expected: dict[str, tuple[int, int] | None]) -> None:
    """Versions that a release had only as a preview are left out: its brokers do not list them by default."""
    have = supported(release)

    assert {name: have.get(schema.names()[name]) for name in expected} == expected


def test_previews_end() -> None:
    """OffsetCommit 9 was not final in 3.6, and is from 3.7 on."""
    assert [supported(release)[8][1] for release in ("3.5", "3.6", "3.7")] == [8, 8, 9]


def test_an_unknown_release_is_an_error() -> None:
    """It is not taken for another one."""
    with pytest.raises(KeyError):
        supported("2.9")
