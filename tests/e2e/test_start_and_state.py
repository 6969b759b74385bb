"""Starting: what is in the way is said in one line and exit code 1. The state file keeps ports over restarts."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kproxy.base.errors import InternalError
from kproxy.testing.process import Child, free_port, free_ports
from tests.support.raw_client import RawClient
from tests.support.wait import until


def why_not(start: Callable[[], Any]) -> str:
    """What a proxy that does not start says."""
    with pytest.raises(InternalError) as failed:
        start()
    text = str(failed.value)
    assert "ended with exit code 1" in text
    assert "Traceback" not in text
    return text


def test_a_listeners_port_is_taken(proxy_with: Callable[..., Any]) -> None:
    """The message names listener and address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = why_not(lambda: proxy_with("127.0.0.1:1", listener={"bind": f"127.0.0.1:{port}"}))
    assert f"kproxy: listener main cannot bind 127.0.0.1 port {port}" in text
    assert "Address already in use" in text


def test_the_port_of_a_node_is_taken(proxy_with: Callable[..., Any]) -> None:
    """The message names listener, port and node, not only where the listener itself is."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        advertise = {"nodes": {"7": f"127.0.0.1:{port}"}}
        text = why_not(lambda: proxy_with("127.0.0.1:1", listener={"advertise": advertise}))
    assert f"kproxy: listener main cannot bind 127.0.0.1 port {port} of node 7: Address already in use" in text


def test_a_certificate_cannot_be_used(proxy_with: Callable[..., Any], tmp_path: Path) -> None:
    """The message names listener and address, or the cluster."""
    (tmp_path / "cert.pem").write_text("none")
    bind, cert = f"127.0.0.1:{free_port()}", str(tmp_path / "cert.pem")
    text = why_not(lambda: proxy_with("127.0.0.1:1", listener={"bind": bind, "tls": {"cert": cert}}))
    assert f"kproxy: listener main, {bind}: TLS files {cert} cannot be used" in text
    text = why_not(lambda: proxy_with("127.0.0.1:1", cluster={"tls": {"ca": cert}}))
    assert f"kproxy: cluster main: TLS files {cert} cannot be used" in text


def test_the_admin_port_is_taken(proxy_with: Callable[..., Any]) -> None:
    """The message names the address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        text = why_not(lambda: proxy_with("127.0.0.1:1", admin={"bind": bind}))
    assert f"kproxy: admin cannot bind {bind}: Address already in use" in text


def test_a_listeners_name_does_not_resolve(proxy_with: Callable[..., Any]) -> None:
    text = why_not(lambda: proxy_with("127.0.0.1:1", listener={"bind": "no-such-host.invalid:9092"}))
    assert "kproxy: listener main cannot bind no-such-host.invalid:9092: " in text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "Expecting property name"),
        ('{"version": 2}', "version is 2, expected 1"),
        ('{"version": 1}', "KeyError 'ports'"),
        ("[]", "TypeError"),
        (None, "(is a directory)"),
    ],
)
def test_a_state_file_that_cannot_be_used(
    proxy_with: Callable[..., Any], tmp_path: Path, content: str | None, problem: str
) -> None:
    """It stops the start, is named with the problem, and is left as it is."""
    state = tmp_path / "state.json"
    if content is None:
        state.mkdir()
    else:
        state.write_text(content)
    text = why_not(lambda: proxy_with("127.0.0.1:1", state=str(state)))
    assert f"{state}:1:1: the state file cannot be used (" in text
    assert problem in text
    assert content is None or state.read_text() == content


def test_ports_stay_the_same_over_a_restart(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], tmp_path: Path
) -> None:
    """A node's port leads to it at once after a restart, before anybody has asked for Metadata."""
    one, two = free_ports(2)
    nodes = {1: ("127.0.0.1", one), 50_000: ("127.0.0.1", two)}
    first, second = fake(nodes=nodes, port=one), fake(nodes=nodes, port=two)
    parts = {"state": str(tmp_path / "state.json"), "listener": {"bind": f"127.0.0.1:{free_port()}"}}
    proxy = proxy_with(first.address, **parts)
    with RawClient(proxy.bootstrap) as client:
        places = client.brokers()
    until((tmp_path / "state.json").exists)
    assert proxy.stop() == 0
    assert json.loads((tmp_path / "state.json").read_text())["nodes"] == {
        "main": {"1": ["127.0.0.1", one], "50000": ["127.0.0.1", two]}
    }

    proxy_with(first.address, **parts)
    asked = len(second.requests)
    with RawClient(places[50_000]) as client:
        assert client.brokers() == places
    assert len(second.requests) == asked + 1


def test_a_state_file_that_cannot_be_written(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], tmp_path: Path
) -> None:
    """A full disk or a missing folder is an error in the log; clients are served as before."""
    (tmp_path / "state.json.new").symlink_to("/dev/full")
    for state, problem in ((tmp_path / "state.json", "No space left"), (tmp_path / "none" / "s.json", "No such file")):
        proxy = proxy_with(fake().address, state=str(state))
        with RawClient(proxy.bootstrap) as client:
            assert len(client.brokers()) == 1
            (line,) = until(lambda proxy=proxy: proxy.said("state file cannot be written"))
            assert (line["level"], line["path"], problem in line["error"]) == ("error", str(state), True)
            assert len(client.brokers()) == 1
        assert not state.exists()


def test_a_log_that_cannot_be_written(fake: Callable[..., Any]) -> None:
    """With the disk full under the log, clients are served, strangers are turned away, and the end is in order."""
    port = free_port()
    command = [sys.executable, "-m", "kproxy", "run", "--upstream", fake().address, "--listen", f"127.0.0.1:{port}"]
    with Child(command, Path("/dev/full")) as child:
        child.wait_until(lambda: listening(port), 30, "kproxy")
        with RawClient(f"127.0.0.1:{port}") as client, RawClient(f"127.0.0.1:{port}") as stranger:
            before = client.brokers()
            stranger.send(b"GET / HTTP/1.1\r\n\r\n")
            assert stranger.rest() == b""
            assert client.brokers() == before
        assert child.stop() == 0


def listening(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
