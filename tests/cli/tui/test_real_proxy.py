"""`kproxy view` and a real proxy: what the terminal shows of its stream, of its API and of a capture is the same."""

from __future__ import annotations

import asyncio
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from kproxy.cli.admin_client import Admin
from kproxy.cli.tui.app import ViewApp
from kproxy.cli.tui.sources import ProxySource, ViewedFiles
from kproxy.protocol import Message
from kproxy.testing.process import Proxy
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import RawClient
from tests.support.terminal_text import press, said, screen_text, settled

pytestmark = pytest.mark.process
OWN = {"id", "kept", "max_wait", "depth"}
"""Columns that say how an exchange was kept, which differs between a proxy's ring and a file."""


def test_the_stream_and_a_capture_say_the_same(tmp_path: Path) -> None:
    """Of the same exchange: its row, the fields and the bytes of both frames."""
    rule = {"name": "slow", "kind": "delay", "match": {"api": "Metadata"}, "delay": "30ms"}
    seen: list[tuple[dict[str, Any], Any]] = []

    async def look(app: ViewApp, pick: str) -> None:
        await settled(app, lambda: any(pick in str(row) for row in app.store.rows))
        place = next(at for at in range(len(app.store)) if app.store.getter(at)("api") == "Metadata")
        get = app.store.getter(place)
        await press(app, "g", *["j"] * place, "enter")
        await settled(app, lambda: app.details.detail)
        assert "Metadata" in said(app)
        detail = app.details.detail
        frames = [detail[name]["client"] for name in ("request", "response")]
        row = {name: get(name) for name in app.store.read.columns if name not in OWN}
        seen.append((row, [(one["data"], one["steps"], one["bytes"]) for one in frames]))

    async def run(proxy: Proxy) -> None:
        admin = Admin(f"http://{proxy.admin}")
        source = ProxySource(admin)
        app = ViewApp(source, "~k metadata", proxy=source)
        async with app.run_test():
            await settled(app, lambda: app.state.good)
            started = await asyncio.to_thread(
                admin, "POST", "/api/captures", query={"file": "seen.pcapng", "payload": "full"}
            )
            await asyncio.to_thread(ask, proxy)
            await look(app, "Metadata")
            await press(app, "1")
            assert "slow" in said(app)
            await asyncio.to_thread(admin, "DELETE", "/api/captures/seen.pcapng")
        file = ViewedFiles([started["file"]])
        app = ViewApp(file, "~k metadata", proxy=source)
        async with app.run_test():
            await look(app, "Metadata")

    config = {"captures": str(tmp_path)}
    with FakeBroker() as broker, Proxy(broker.address, rules=[rule], config=with_captures(broker, config)) as proxy:
        asyncio.run(run(proxy))
    (live, live_frames), (recorded, recorded_frames) = seen
    assert {
        name: value for name, value in live.items() if name not in ("time", "latency", "broker_ms", "kproxy_ms")
    } == {name: value for name, value in recorded.items() if name not in ("time", "latency", "broker_ms", "kproxy_ms")}
    assert abs(live["time"] - recorded["time"]) < 0.001
    assert live_frames == recorded_frames


def with_captures(broker: FakeBroker, more: dict[str, Any]) -> dict[str, Any]:
    from kproxy.testing.process import free_port_with_room

    return {
        "clusters": {"main": {"bootstrap": [broker.address]}},
        "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port_with_room(10)}", "cluster": "main"}],
        **more,
    }


def of_clients(broker: FakeBroker) -> list[Message]:
    return [one for one in broker.requests if one.header.get("client_id") == "raw"]


def ask(proxy: Proxy) -> None:
    with RawClient(proxy.bootstrap) as client:
        client.brokers()


def test_what_the_broker_gets_is_what_was_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held by `i`, edited as YAML, looked at, let go: the client has its answer."""
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/allow_auto_topic_creation: false/allow_auto_topic_creation: true/" "$1"\n')
    editor.chmod(stat.S_IRWXU)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setattr(ViewApp, "suspend", lambda app: nullcontext())

    async def run(proxy: Proxy, broker: FakeBroker) -> None:
        source = ProxySource(Admin(f"http://{proxy.admin}"))
        app = ViewApp(source, "", proxy=source)
        async with app.run_test():
            await settled(app, lambda: app.state.good)
            await press(app, "i", "=~k metadata", "enter", "y")
            await settled(app, lambda: "held for ten minutes" in said(app))
            asking = asyncio.create_task(asyncio.to_thread(ask, proxy))
            await press(app, "3")
            await settled(app, lambda: "Metadata v4" in said(app) and "allow_auto_topic_creation false" in said(app))
            assert of_clients(broker) == []
            await press(app, "j", "e")
            await settled(app, lambda: "allow_auto_topic_creation true" in said(app))
            await press(app, "a")
            await asking
            await settled(app, lambda: "0 held" in said(app))
            await press(app, "I", "=yes", "enter")
            await settled(app, lambda: " is off" in said(app))
        (request,) = of_clients(broker)
        assert request.body["allow_auto_topic_creation"] is True

    with FakeBroker() as broker, Proxy(broker.address) as proxy:
        asyncio.run(run(proxy, broker))


@pytest.mark.deep
def test_a_proxy_that_is_started_again() -> None:
    """The list begins anew, by itself."""

    async def run(proxy: Proxy) -> None:
        source = ProxySource(Admin(f"http://{proxy.admin}"))
        app = ViewApp(source, "", proxy=source)
        async with app.run_test():
            await settled(app, lambda: app.state.good)
            stream = app.state.stream
            await asyncio.to_thread(ask, proxy)
            await settled(app, lambda: "Metadata" in screen_text(app))
            assert proxy.child is not None
            await asyncio.to_thread(proxy.child.stop, 20)
            await settled(app, lambda: app.state.trouble)
            assert "again in" in said(app)
            proxy.child = None
            await asyncio.to_thread(proxy.start)
            await settled(app, lambda: app.state.good)
            assert (app.state.stream != stream, len(app.store)) == (True, 0)

    with FakeBroker() as broker, Proxy(broker.address) as proxy:
        asyncio.run(run(proxy))
