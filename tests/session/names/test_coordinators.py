"""FindCoordinator keys are what the key type says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import GROUP, TRANSACTIONAL_ID
from kproxy.session.rewrite.context import Context

Through = Callable[..., Any]


@pytest.fixture
def names() -> NameMaps:
    """Group `app` is `prod.app`, transactional id `app` is `blue.app`."""
    return NameMaps(
        groups=NameMap.of({"app": "prod.app"}, space=GROUP),
        transactional_ids=NameMap.of({"app": "blue.app"}, space=TRANSACTIONAL_ID),
    )


@pytest.mark.parametrize(
    ("version", "kind", "key", "sent"),
    [
        (0, None, "app", "prod.app"),
        (1, 0, "app", "prod.app"),
        (2, 1, "app", "blue.app"),
        (3, 0, "other", "other"),
        (3, 1, "blue.app", "!unreachable:blue.app"),
        (3, 7, "app", "app"),
    ],
)
def test_one_key(through: Through, version: int, kind: int | None, key: str, sent: str) -> None:
    """In versions up to 3 the type stands behind the key, or is missing."""
    values = {"key": key} | ({} if kind is None else {"key_type": kind})
    assert through(10, version, "request", **values)["key"] == sent


@pytest.mark.parametrize(
    ("version", "kind", "keys", "sent"),
    [
        (4, 0, ["app", "x"], ["prod.app", "x"]),
        (5, 1, ["app", "x"], ["blue.app", "x"]),
        (6, 2, ["app:abc:0", "x:y:abc:1", "app"], ["prod.app:abc:0", "x:y:abc:1", "prod.app"]),
        (6, 9, ["app"], ["app"]),
    ],
)
def test_many_keys_there_and_back(
    through: Through, context: Context, version: int, kind: int, keys: list[str], sent: list[str]
) -> None:
    """The response does not say the type, its request did."""
    assert through(10, version, "request", key_type=kind, coordinator_keys=keys)["coordinator_keys"] == sent
    rows = [{"key": key, "node_id": 1, "host": "h", "port": 1, "error_code": 0, "error_message": None} for key in sent]
    found = through(10, version, "response", coordinators=rows)["coordinators"]
    assert [one["key"] for one in found] == keys
    assert context.note == {"coordinator_key_type": kind}
