"""The proxy in its own thread: start, calls, end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kproxy.base.errors import InternalError
from kproxy.testing.cluster import MockCluster
from kproxy.testing.embedded import Embedded, FrontThread, front, front_config
from kproxy.testing.process import free_port


@pytest.fixture
def engine(mock_cluster: MockCluster) -> Iterator[Embedded]:
    engine = Embedded(mock_cluster.bootstrap)
    engine.start()
    yield engine
    engine.stop()


def test_it_runs_in_its_thread_and_ends_with_it(mock_cluster: MockCluster) -> None:
    """What is asked of it is done there; after its end that is said."""
    engine = Embedded(mock_cluster.bootstrap)
    engine.start()
    assert engine.call(threading.current_thread).name == "kproxy"
    assert engine.call(lambda: engine.inside) and not engine.inside

    engine.stop()

    assert "kproxy" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(InternalError, match="has been stopped"):
        engine.call(threading.current_thread)


def test_what_is_raised_there_is_raised_here(engine: Embedded) -> None:
    """And the proxy goes on."""
    with pytest.raises(ZeroDivisionError):
        engine.call(lambda: 1 // 0)

    assert engine.call(lambda: 1) == 1


def test_there_is_one_at_a_time(engine: Embedded, mock_cluster: MockCluster) -> None:
    """A second one is refused, and does not end the first."""
    second = Embedded(mock_cluster.bootstrap)
    with pytest.raises(InternalError, match="runs in this process already"):
        second.start()

    assert engine.call(lambda: engine.proxy.listening)


def test_an_upstream_that_is_not_there() -> None:
    """It says so at once, and leaves the place to the next one."""
    address = f"127.0.0.1:{free_port()}"

    for _ in range(2):
        with pytest.raises(InternalError, match=f"no broker of the upstream {address} answers"):
            Embedded(address).start()


def test_warnings_of_its_log_are_kept(engine: Embedded) -> None:
    """The newest two hundred lines."""
    for number in range(205):
        engine.proxy.log.warning("careful", number=number)
        engine.proxy.log.info("nothing to see")

    assert len(engine.log().splitlines()) == 200
    assert engine.log().splitlines()[-1].endswith("number=204")


def test_front_thread_ends_by_itself_calls_ended() -> None:
    """The command that started it would wait, and tests would use a proxy that has ended."""
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
    """End a proxy that was not stopped, and wait for its end."""
    thread.token.run_sync_soon(thread.scope.cancel)
    thread.thread.join(60)


def test_front_ended_before_its_block_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that is stopped at the end of its block raises no error."""
    over = threading.Event()
    with MockCluster(1) as cluster:
        config = front_config(cluster.bootstrap, "127.0.0.1:0")
        with front(config, over.set):
            pass
        assert not over.is_set()
        monkeypatch.setattr(FrontThread, "stop", end_by_itself)
        with pytest.raises(InternalError, match="the proxy has ended"), front(config, over.set):
            pass
