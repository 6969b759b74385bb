"""How a proxy is started for tests."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.testing.process import WORKERS, Proxy


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"upstream": "h:1"}, ["--workers", "2"]),
        ({"config": {"listeners": [{"bind": "127.0.0.1:1"}]}}, ["--workers", "2"]),
        ({"config": {"listeners": [{"bind": "127.0.0.1:1"}], "workers": 3}}, []),
        ({"upstream": "h:1", "arguments": ["--workers", "3"]}, ["--workers", "3"]),
    ],
)
def test_workers_for_all_that_do_not_say(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], expected: list[str]
) -> None:
    """By an environment variable, which changes nothing where a test has a number of its own."""
    monkeypatch.setenv(WORKERS, "2")
    proxy = Proxy(**given)
    try:
        command = proxy._command
        assert command[command.index("--workers") :] == expected if expected else "--workers" not in command
    finally:
        proxy.stop()
