"""`kproxy ready` says by its exit code whether a running proxy can serve clients."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from kproxy.testing.process import free_port
from tests.support.fake_broker import FakeBroker
from tests.support.wait import until


def ready(admin: str, *options: str) -> tuple[int, str, str]:
    """Exit code, what was printed, and what was complained about."""
    command = [sys.executable, "-m", "kproxy", "ready", *options]
    environment = {**os.environ, "KPROXY_ADMIN": f"http://{admin}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


def test_its_exit_code_is_that_of_a_health_check(fake: Callable[..., FakeBroker], proxy_with: Any) -> None:
    """0 when brokers answer; 1 with what is waited for while they do not, and when nothing listens there."""
    port = free_port()
    waiting = proxy_with(f"127.0.0.1:{port}", wait=False)
    until(lambda: "refused" in ready(waiting.admin)[2])
    assert ready(waiting.admin) == (1, "", f"waiting for cluster main: 127.0.0.1:{port}: connection refused\n")
    assert ready(waiting.admin, "--live") == (0, "alive\n", "")

    assert ready(proxy_with(fake().address).admin) == (0, "ready\n", "")

    code, text, complaint = ready(f"127.0.0.1:{port}")
    assert (code, text) == (1, "")
    assert f"nothing answers at http://127.0.0.1:{port} (connection refused)" in complaint
