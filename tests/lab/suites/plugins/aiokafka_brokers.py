"""A plugin of pytest for aiokafka's own tests: brokers that run already, in place of those that they start in Docker.

Strategy: the fixtures of their conftest.py are replaced as it is registered, before pytest looks for fixtures in it. It
runs in aiokafka's own environment, so it imports nothing but pytest. KPROXY_BOOTSTRAP says where the brokers are.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import pytest

NEITHER = ("docker", "ssl_folder", "acl_manager", "kafka_config", "kerberos_utils")
"""Fixtures for what a bare broker has not got: tests that use them fail, with or without kproxy."""


def pytest_plugin_registered(plugin: object) -> None:
    """Replace the fixtures of tests/conftest.py."""
    file = getattr(plugin, "__file__", None) or ""
    if isinstance(plugin, ModuleType) and file.endswith(os.path.join("tests", "conftest.py")):
        for name in NEITHER:
            setattr(plugin, name, pytest.fixture(scope="session", name=name)(nothing))
        plugin.kafka_server = pytest.fixture(scope="session", name="kafka_server")(server_of(plugin))  # type: ignore[attr-defined]


def nothing() -> None:
    """Stand in for a fixture that needs a container."""


def server_of(conftest: Any) -> Any:
    """Return a function that describes the brokers as their conftest.py does."""

    def kafka_server() -> Any:
        host, _, port = os.environ["KPROXY_BOOTSTRAP"].partition(",")[0].rpartition(":")
        return conftest.KafkaServer(host, int(port), 0, 0, 0, None)

    return kafka_server
