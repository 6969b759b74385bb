"""Creation of topics past a proxy: they are known to every broker when the function returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kproxy.base.errors import InternalError
from kproxy.protocol.table.api_keys import CREATE_TOPICS
from kproxy.testing.one_request import ask, topics
from tests.support.wait import until

VERSION = 2
TIMED_OUT, EXISTS, NOT_CONTROLLER = 7, 36, 41
AGAIN = (TIMED_OUT, NOT_CONTROLLER)


def create_topics(
    bootstrap: str, *names: str, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None,
    seconds: float = 60,
) -> None:  # fmt: skip
    """Make these topics by asking the brokers at `host:port,…` themselves, and wait until each of them knows them.

    A topic that is there already is fine if it has as many partitions: a busy controller may be asked twice by a broker
    that was asked once. Raises InternalError for what the cluster refuses, AssertionError after `seconds`.
    """
    addresses = bootstrap.split(",")
    configs = [{"name": name, "value": value} for name, value in (config or {}).items()]
    each = {"num_partitions": partitions, "replication_factor": replicas, "assignments": [], "configs": configs}
    new = [{"name": name, **each} for name in names]
    until(lambda: any(_asked(address, new) for address in addresses), seconds)
    wanted = dict.fromkeys(names, partitions)
    until(lambda: all(topics(address, list(wanted)) == wanted for address in addresses), seconds)


def _asked(address: str, new: list[dict[str, Any]]) -> bool:
    """Ask this broker to make the topics. Return True if it has made them all, or they were there. Raises InternalError
    for a topic that is refused."""
    body = {"topics": new, "timeout_ms": 30_000, "validate_only": False}
    try:
        answer = ask(address, CREATE_TOPICS, VERSION, body, timeout=35)
    except OSError:
        return False
    refused = {one["name"]: one for one in answer["topics"] if one["error_code"] not in (0, EXISTS, *AGAIN)}
    if refused:
        told = (f"{name}: {one['error_code']} {one['error_message']}" for name, one in refused.items())
        raise InternalError("topics cannot be made: " + "; ".join(told))
    return all(one["error_code"] in (0, EXISTS) for one in answer["topics"])
