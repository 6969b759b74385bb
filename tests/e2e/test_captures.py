"""Captures of a running proxy, over its admin API and by `kproxy capture`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kproxy.base.errors import InternalError
from kproxy.cli import capture, main
from kproxy.cli.admin_client import Admin
from kproxy.record.captures.reader import read
from tests.support.capture_files import tshark
from tests.support.raw_client import RawClient
from tests.support.wait import until

RENAME = {"name": "other names upstream", "kind": "rename_topic", "topics": {"orders": "prod.orders"}}


@pytest.fixture
def captured(fake: Callable[..., Any], proxy_with: Callable[..., Any], tmp_path: Path) -> Any:
    """A proxy that renames orders, and makes captures in the folder captures."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"rules": [RENAME]}))
    return proxy_with(fake().address, captures=str(tmp_path / "captures"), rules=[str(rules)])


def command(proxy: Any, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "KPROXY_ADMIN": f"http://{proxy.admin}"}
    return subprocess.Popen(
        [sys.executable, "-m", "kproxy", "capture", *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def answer(proxy: Any, *arguments: str) -> str:
    """What it prints; exit code 0."""
    running = command(proxy, *arguments)
    said, wrong = running.communicate(timeout=60)
    assert (running.returncode, wrong) == (0, "")
    return said


def ask(client: RawClient, topic: str, times: int = 1) -> None:
    """Metadata for a topic, so often."""
    for _ in range(times):
        client.call(3, 8, {"topics": [{"name": topic}]})


def test_both_sides_of_what_passed(captured: Any, tmp_path: Path) -> None:
    """The client's names on one interface, the broker's on the other; an old connection is recorded, too."""
    admin = Admin(f"http://{captured.admin}")
    with RawClient(captured.bootstrap) as old, RawClient(captured.bootstrap) as new:
        ask(old, "orders")
        started = admin("POST", "/api/captures", query={"file": "both", "payload": "full", "filter": "~k metadata"})
        assert ("running", "api == Metadata", 0) == (started["state"], started["filter"], started["dropped"])
        ask(old, "orders", 2)
        ask(new, "orders", 3)
        host, port = old.socket.getsockname()
        new_port = new.socket.getsockname()[1]
        until(lambda: admin("GET", "/api/captures/both")["exchanges"] == 5)
        stopped = admin("DELETE", "/api/captures/both")

    assert ("stopped", "asked", 5, 5, 2) == tuple(
        stopped[name] for name in ("state", "stopped", "exchanges", "broker_exchanges", "connections")
    )
    path = Path(stopped["file"])
    assert path.parent == tmp_path / "captures"
    assert path.stat().st_size == stopped["size"]
    client, broker = (list(read(path, side=side)) for side in ("client", "broker"))
    assert all(seen.who.older for seen in (*client, *broker))  # type: ignore[attr-defined]
    for seen, topic in [*((one, "orders") for one in client), *((one, "prod.orders") for one in broker)]:
        assert seen.request_body and seen.request_body["topics"][0]["name"] == topic
        assert (seen.who.listener, seen.who.cluster, seen.who.client_address) == ("main", "main", host)
    assert [(port, 2), (new_port, 3)] == sorted(
        ((one, sum(seen.who.client_port == one for seen in client)) for one in (port, new_port)),
        key=lambda found: found[1],
    )
    assert {(captured.bootstrap)} == {f"{seen.who.server_address}:{seen.who.server_port}" for seen in client}  # type: ignore[attr-defined]
    shown = f"kafka.api_key == 3 && tcp.port == {captured.port}"
    found = list(tshark(path, "-Y", shown, "-T", "fields", "-e", "frame.interface_name", port=captured.port))
    assert ["client"] in found and ["broker"] not in found


def test_the_command_line(captured: Any, tmp_path: Path) -> None:
    """start, list, stop; what is refused has exit code 1 and says why."""
    assert answer(captured, "start", "one", "--payload", "none", "~k", "metadata").startswith("one.pcapng\trunning")
    with RawClient(captured.bootstrap) as client:
        ask(client, "orders")
        admin = Admin(f"http://{captured.admin}")
        until(lambda: admin("GET", "/api/captures/one")["broker_exchanges"])
        assert answer(captured, "stop", "one").startswith("one.pcapng\tstopped\tasked\t1\t1\t1")
    assert "one.pcapng" == json.loads(answer(captured, "list", "--json"))["captures"][0]["name"]
    for arguments, why in (
        (("start", "one"), "is there already, and is not overwritten"),
        (("start", "../two"), "file: letters, digits"),
        (("start", "two", "--max-size", "many"), "expected a size"),
        (("start", "two", "~nothing"), "filter: "),
        (("stop", "two"), 'unknown capture "two"'),
    ):
        running = command(captured, *arguments)
        said, wrong = running.communicate(timeout=60)
        assert (1, "") == (running.returncode, said)
        assert why in wrong
    assert ["one.pcapng"] == [path.name for path in (tmp_path / "captures").iterdir()]


def test_the_shorthand_records_until_it_is_interrupted(captured: Any, tmp_path: Path) -> None:
    """`kproxy capture FILE`; a limit ends it, too."""
    running = command(captured, "quick")
    path = tmp_path / "captures" / "quick.pcapng"
    until(path.exists)
    with RawClient(captured.bootstrap) as client:
        ask(client, "orders")
    admin = Admin(f"http://{captured.admin}")
    until(lambda: admin("GET", "/api/captures/quick")["exchanges"])
    running.send_signal(signal.SIGINT)
    said, wrong = running.communicate(timeout=60)
    assert (0, True) == (running.returncode, said.startswith("quick.pcapng\tstopped\tasked"))
    assert f"recording into {path}, Ctrl-C ends it" in wrong

    limited = command(captured, "limited", "--max-exchanges", "1")
    until((tmp_path / "captures" / "limited.pcapng").exists)
    with RawClient(captured.bootstrap) as client:
        ask(client, "orders")
        said, _ = limited.communicate(timeout=60)
    assert said.startswith("limited.pcapng\tstopped\tmax_exchanges\t1")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_capture_follower_stops_it_on_each_signal(captured: Any, number: signal.Signals) -> None:
    """A follower that ends leaves no capture that records on."""
    running = command(captured, "followed", "--seconds", "600")
    assert running.stderr is not None
    assert "recording into" in running.stderr.readline()
    running.send_signal(number)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 0 and said.startswith("followed.pcapng\tstopped\tasked")


def test_capture_follower_that_fails_stops_it(captured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while it follows, such as a lost connection, is reported after the capture has been stopped."""
    admin = Admin(f"http://{captured.admin}")

    def fail(found: Any) -> None:
        raise InternalError("lost")

    monkeypatch.setattr(capture, "progress", fail)
    result = CliRunner().invoke(main, ["capture", "failed", "--admin", admin.url])
    assert result.exit_code == 1 and "lost" in result.stderr
    assert admin("GET", "/api/captures/failed")["state"] == "stopped"


@pytest.mark.parametrize("option", ["--seconds", "--max-seconds"])
def test_capture_seconds_need_no_unit(captured: Any, option: str) -> None:
    running = command(captured, "brief", option, "0.2")
    said, wrong = running.communicate(timeout=60)
    assert running.returncode == 0 and said.startswith("brief.pcapng\tstopped\tmax_seconds"), wrong


def test_a_proxy_that_ends_leaves_whole_files(captured: Any, tmp_path: Path) -> None:
    """SIGTERM ends a capture as a stop does."""
    Admin(f"http://{captured.admin}")("POST", "/api/captures", query={"file": "last"})
    with RawClient(captured.bootstrap) as client:
        ask(client, "orders")
    captured.stop()

    told = json.loads(subprocess.run(
        [sys.executable, "-m", "kproxy", "capture", "info", "--json", str(tmp_path / "captures" / "last.pcapng")],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout)  # fmt: skip
    assert ("proxy_ended", False) == (told["stopped"], told["file ends within a packet"])
    assert told["exchanges"] >= 1
