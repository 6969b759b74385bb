"""kproxy in front of brokers in a thread: how its end is told."""

from __future__ import annotations

import threading

import pytest

from kproxy.base.errors import InternalError
from kproxy.testing.cluster import MockCluster
from kproxy.testing.embedded import FrontThread, front, front_config


def test_a_proxy_that_ends_by_itself_is_told() -> None:
    """Else the command that has started it would wait for ever, and tests for a proxy that is not there."""
    over = threading.Event()
    with MockCluster(1) as cluster:
        thread = FrontThread(front_config(cluster.bootstrap, "127.0.0.1:0"), over.set)
        thread.start()
        assert not over.is_set()
        thread.token.run_sync_soon(thread.scope.cancel)
        assert over.wait(60)
        thread.stop()
    assert thread.failure.startswith("the proxy has ended: ") and not thread.thread.is_alive()


def end_by_itself(thread: FrontThread) -> None:
    """Have a proxy end though nobody has stopped it, and wait for that."""
    thread.token.run_sync_soon(thread.scope.cancel)
    thread.thread.join(60)


def test_its_end_is_raised_once_it_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was stopped in time has ended as it should, and nothing is raised."""
    over = threading.Event()
    with MockCluster(1) as cluster:
        config = front_config(cluster.bootstrap, "127.0.0.1:0")
        with front(config, over.set):
            pass
        assert not over.is_set()
        monkeypatch.setattr(FrontThread, "stop", end_by_itself)
        with pytest.raises(InternalError, match="the proxy has ended"), front(config, over.set):
            pass
