"""No secret reaches a capture, whatever its payload, nor comes out of one that somebody else has recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kproxy.record.captures.policy import Policy
from kproxy.record.captures.reader import Capture
from kproxy.record.exchange import Depth, Frame, ObservedExchange
from kproxy.record.observer.observer import ConnectionObserver
from tests.support.capture_files import client, request, response, written

SECRET = b"Tr0ub4dor"
TEXT = SECRET.decode()
CONFIGS = [{"name": "ssl.keystore.password", "value": TEXT}]
RESOURCE = {"resource_type": 4, "resource_name": "1"}

TALK: list[tuple[str, int, dict[str, Any], dict[str, Any]]] = [
    ("SaslHandshake", 1, {"mechanism": "PLAIN"}, {"mechanisms": ["PLAIN"]}),
    ("SaslAuthenticate", 2, {"auth_bytes": b"\0a\0" + SECRET}, {"auth_bytes": SECRET}),
    ("CreateDelegationToken", 3, {}, {"hmac": SECRET}),
    ("RenewDelegationToken", 2, {"hmac": SECRET}, {}),
    ("ExpireDelegationToken", 2, {"hmac": SECRET}, {}),
    ("DescribeDelegationToken", 3, {}, {"tokens": [{"hmac": SECRET}]}),
    ("AlterUserScramCredentials", 0, {"upsertions": [{"name": "a", "salt": SECRET, "salted_password": SECRET}]}, {}),
    ("AlterConfigs", 2, {"resources": [{**RESOURCE, "configs": CONFIGS}]}, {}),
    ("IncrementalAlterConfigs", 1, {"resources": [{**RESOURCE, "configs": CONFIGS}]}, {}),
    ("DescribeConfigs", 4, {"resources": [RESOURCE]}, {"results": [{**RESOURCE, "configs": CONFIGS}]}),
    (
        "CreateTopics",
        7,
        {"topics": [{"name": "t", "configs": CONFIGS}]},
        {"topics": [{"name": "t", "configs": CONFIGS}]},
    ),
]


def frames() -> list[tuple[bytes, bytes]]:
    """Requests and their responses, with their lengths; at the end SaslHandshake 0 and a raw token each way."""
    made = [
        (request(api, version, number, asked), response(api, version, number, told))
        for number, (api, version, asked, told) in enumerate(TALK, 1)
    ]
    made.append((request("SaslHandshake", 0, 90, {"mechanism": "PLAIN"}),
                 response("SaslHandshake", 0, 90, {"mechanisms": ["PLAIN"]})))  # fmt: skip
    made.append((b"\0a\0" + SECRET, SECRET))
    assert len(TALK) <= sum(SECRET in asked + told for asked, told in made)
    return [(sized(asked), sized(told)) for asked, told in made]


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("payload", ["full", "head", "none"])
def test_none_is_written(tmp_path: Path, payload: str) -> None:
    """All exchanges are there, and each frame with its size; the secret is in none."""
    seen: list[ObservedExchange] = []
    observer = ConnectionObserver(client(), lambda key, version: Depth.FULL, seen.append)
    for asked, told in frames():
        observer.from_client(asked, len(asked), 1000.0)
        observer.to_client(told, len(told), 1000.5)
    observer.end(1001.0)

    path = written(tmp_path / "c.pcapng", seen, Policy(payload, 5000))

    assert SECRET not in path.read_bytes()
    found = list(Capture(path))
    assert len(TALK) + 1 == len(found)
    for (asked, told), one in zip(frames(), found, strict=False):
        assert one.request and one.response
        assert (len(asked), len(told)) == (one.request.size, one.response.size)


def test_none_is_read(tmp_path: Path) -> None:
    """From a file that has them all, as tcpdump's do: each exchange is there, the secret comes out of none."""
    seen = []
    for number, (asked, told) in enumerate(frames(), 1):
        key, version = int.from_bytes(asked[4:6], "big"), int.from_bytes(asked[6:8], "big")
        one = ObservedExchange(client(), number, key, version, number, "shop", Frame(len(asked), 1.0, 1.0, asked[4:]))
        one.response = Frame(len(told), 1.0, 1.0, told[4:])
        seen.append(one)
    path = recorded(tmp_path / "c.pcapng", seen)
    assert len(TALK) <= path.read_bytes().count(SECRET)

    found = list(Capture(path))

    assert len(TALK) + 1 == len(found)
    for one in found:
        for frame in (one.request, one.response):
            assert frame and SECRET not in frame.data


def recorded(path: Path, seen: list[ObservedExchange]) -> Path:
    """A capture with all bytes, and without a word that it is kproxy's."""

    class Everything(Policy):
        def kept(self, seen: ObservedExchange, frame: Frame, *, response: bool) -> bytes:
            return frame.data

    data = written(path, seen, Everything("full")).read_bytes()
    path.write_bytes(data.replace(b"kproxy", b"nobody"))
    return path
