"""`kproxy view` of a running proxy: the stream and its breaks, refusals, and the screens that ask and change."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from kproxy.cli.admin_client import Admin
from kproxy.cli.tui import held_pane, sources
from kproxy.cli.tui.app import ViewApp
from kproxy.cli.tui.held_pane import HeldPane
from kproxy.cli.tui.host import user
from kproxy.cli.tui.keys import KEYS
from kproxy.cli.tui.sources import ProxySource
from kproxy.record.live_view.rows import COLUMNS
from tests.support.fake_admin import FakeAdmin, event, fake_admin
from tests.support.terminal_text import idle, press, said, same_screen, screen_text, settled

pytestmark = pytest.mark.process
HERE = Path(__file__).parent
NOON = 1_795_262_400.0
HELLO = {"stream": "3f9c", "filter": "", "workers": 2, "rows": 400, "may_write": True, "columns": list(COLUMNS)}
Script = Callable[[ViewApp], Coroutine[Any, Any, None]]


@pytest.fixture
def admin() -> Iterator[FakeAdmin]:
    """A proxy that says hello to the first listener."""
    with fake_admin() as found:
        found.stream().put(event("hello", HELLO, "3f9c.0-1"))
        yield found


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken streams are asked for again at once."""
    monkeypatch.setattr(sources, "PAUSES", (0.02,))


def row(number: int, **values: Any) -> list[Any]:
    known = {"id": f"0-{number}", "time": NOON + number, "connection": 17, "client": "etl-3", "api": "Produce",
             "version": 9, "about": "orders[3]", "latency": 1.5, "outcome": "answered", "errors": [],
             "responder": "broker", "rules": [], "topic": "orders", "partition": 3, **values}  # fmt: skip
    return [known.get(name) for name in COLUMNS]


def play(admin: FakeAdmin, script: Script, size: tuple[int, int] = (80, 24), ready: bool = True) -> None:
    """View the proxy, and do what the script does, once it has said hello."""

    async def run() -> None:
        proxy = ProxySource(Admin(admin.url))
        app = ViewApp(proxy, "", proxy=proxy)
        async with app.run_test(size=size):
            if ready:
                await settled(app, lambda: app.state.good)
            await script(app)

    asyncio.run(run())


def named(app: ViewApp) -> list[str]:
    return [app.store.ident(place) for place in range(len(app.store))]


# ---- the stream


def test_rows_come_and_change(admin: FakeAdmin) -> None:
    """In their order; one that was under way is shown again when it is over, in its own place."""

    async def script(app: ViewApp) -> None:
        admin.streams[0].put(event("rows", {"rows": [row(1, outcome=None, latency=None), row(2)]}, "3f9c.0-2"))
        await settled(app, lambda: len(app.store) == 2)
        assert "under way" in screen_text(app)
        admin.streams[0].put(event("rows", {"rows": [row(1, errors=["NOT_LEADER_OR_FOLLOWER"])]}, "3f9c.0-3"))
        await settled(app, lambda: "under way" not in screen_text(app))
        assert named(app) == ["0-1", "0-2"]
        assert admin.listened[0].query == {"rows": "400", "page": app.page}
        assert admin.listened[0].headers["accept"] == "text/event-stream"

    play(admin, script)


def test_rates_and_what_was_left_out_are_always_on_the_screen(admin: FakeAdmin) -> None:
    """Each with its reason."""

    async def script(app: ViewApp) -> None:
        admin.streams[0].put(event("tick", {"seconds": 2.0, "passed": 3684, "matched": 26, "audit": {"lost": 3}}))
        left = {"not_looked_at": 2048, "too_many": 66, "too_slow": 0, "unknown": 0, "why": ""}
        admin.streams[0].put(event("left", left))
        await settled(app, lambda: app.state.left and app.state.rate)
        head = screen_text(app).splitlines()[0]
        assert "1,842/s, 13/s match · skipped 2,114: 2,048 CPU limit, 66 too many" in head
        assert "the audit has lost 3 · 2 workers" in head

    play(admin, script, size=(160, 24))


def test_a_stream_that_breaks_is_taken_up_again(admin: FakeAdmin) -> None:
    """Behind the last event, without a row twice; what is missing is said."""

    async def script(app: ViewApp) -> None:
        admin.streams[0].put(event("rows", {"rows": [row(1)]}, "3f9c.0-1.1-7"))
        await settled(app, lambda: len(app.store) == 1)
        again = admin.stream()
        again.put(event("hello", HELLO, "3f9c.0-1.1-7"))
        again.put(event("gap", {"why": "worker restarted", "missing": 812}))
        again.put(event("rows", {"rows": [row(2)]}, "3f9c.0-2.1-7"))
        admin.streams[0].put(None)
        await settled(app, lambda: len(app.store) == 2)
        assert admin.listened[1].headers["last-event-id"] == "3f9c.0-1.1-7"
        assert "rows are missing: 812, worker restarted" in screen_text(app)

    play(admin, script)


def test_another_stream_begins_with_an_empty_list(admin: FakeAdmin) -> None:
    """A proxy that was restarted counts its exchanges anew."""

    async def script(app: ViewApp) -> None:
        admin.streams[0].put(event("rows", {"rows": [row(1), row(2)]}, "3f9c.0-2"))
        await settled(app, lambda: len(app.store) == 2)
        again = admin.stream()
        again.put(event("hello", {**HELLO, "stream": "77aa"}, "77aa.0-0"))
        again.put(event("rows", {"rows": [row(1, client="another")]}, "77aa.0-1"))
        admin.streams[0].put(None)
        await settled(app, lambda: "another" in screen_text(app))
        assert named(app) == ["0-1"]

    play(admin, script)


def test_a_proxy_that_is_gone(admin: FakeAdmin) -> None:
    """It is said, and asked for until it is there."""

    async def script(app: ViewApp) -> None:
        await settled(app, lambda: app.state.trouble)
        assert "nothing answers at http://127.0.0.1:1" in screen_text(app)
        assert "not connected" in screen_text(app)
        app.proxy.admin.port = int(admin.url.rpartition(":")[2])
        await settled(app, lambda: app.state.good)
        assert "nothing answers" not in screen_text(app)

    real, admin.url = admin.url, "http://127.0.0.1:1"

    async def run() -> None:
        proxy = ProxySource(Admin("http://127.0.0.1:1"))
        app = ViewApp(proxy, "", proxy=proxy)
        async with app.run_test():
            admin.url = real
            await script(app)

    asyncio.run(run())


def test_a_token_that_is_refused(admin: FakeAdmin) -> None:
    """It is said how to give one, and the proxy is not asked again."""
    admin.refusal = admin.problem(401, "unauthorized", "a bearer token is needed")

    async def script(app: ViewApp) -> None:
        await settled(app, lambda: app.state.trouble)
        assert "a bearer token is needed, in KPROXY_TOKEN or by --token-file" in screen_text(app)
        asked = len(admin.asked)
        await idle()
        assert len(admin.asked) == asked == 1

    play(admin, script, ready=False, size=(100, 24))


def test_something_that_is_no_kproxy(admin: FakeAdmin) -> None:
    """Events that are no JSON, or not what they should be, end no view."""

    async def script(app: ViewApp) -> None:
        first = admin.streams[0]
        for odd in ({"rows": 7}, {"rows": [7, None, {}, ["x"], [[], {}]]}, {}):
            first.put(event("rows", odd))
        for name in ("tick", "left", "gap", "hello", "held", "what"):
            first.put(event(name, {"columns": list(COLUMNS), "seconds": "x", "passed": -1, "why": [], "left": {}}))
        first.put(b": alive\n\ndata: [1]\n\nevent: rows\ndata: nonsense\n\n")
        await settled(app, lambda: "an event without JSON" in screen_text(app) or len(admin.listened) > 1)
        for key in ("G", "enter", "3", "4", "5", "6", "1"):
            await press(app, key)
            await idle()
        assert app.is_running

    play(admin, script)


@pytest.mark.parametrize("odd", [None, 7, "x", [], [7, None], {}, {"rules": 7}, {"held": [{}, 7, {"id": {}}]}])
def test_answers_that_are_not_what_they_should_be(admin: FakeAdmin, odd: Any) -> None:
    """Each screen shows what can be shown of it, and the view goes on."""
    for path in ("exchanges/0-1", "rules", "connections", "captures", "held"):
        listed = path.partition("/")[0]
        admin.answers["GET", f"/api/{path}"] = 200, odd if odd is None or isinstance(odd, dict) else {listed: odd}
    more = {"event": odd, "request": {"client": {"steps": odd, "data": odd}, "changed": odd}, "records": odd}
    if isinstance(odd, list):
        admin.answers["GET", "/api/exchanges/0-1"] = 200, more

    async def script(app: ViewApp) -> None:
        admin.streams[0].put(event("rows", {"rows": [row(1)]}, "3f9c.0-1"))
        await settled(app, lambda: len(app.store) == 1)
        for key in ("enter", "tab", "tab", "tab", "tab", "3", "4", "enter", "t", "5", "6", "1"):
            await press(app, key)
        await settled(app, lambda: True)
        assert app.is_running

    play(admin, script)


def test_another_filter_is_judged_before_it_takes_the_place_of_the_old(admin: FakeAdmin) -> None:
    """What the proxy refuses leaves the list and its stream as they were."""

    async def script(app: ViewApp) -> None:
        admin.streams[0].put(event("rows", {"rows": [row(1)]}, "3f9c.0-1"))
        await settled(app, lambda: len(app.store) == 1)
        admin.refusal = admin.problem(429, "too_many_listeners", "16 listen already, at most 16 may")
        await press(app, "f", "=~k fetch", "enter")
        await settled(app, lambda: app.message[0])
        assert "16 listen already" in screen_text(app)
        assert len(app.store) == 1
        admin.refusal = None
        again = admin.stream()
        again.put(event("hello", {**HELLO, "filter": "api == Fetch"}, "3f9c.0-1"))
        await press(app, "f", "=~k fetch", "enter")
        await settled(app, lambda: app.filter_text == "api == Fetch")
        assert admin.listened[1].query["filter"] == "~k fetch"
        assert (len(app.store), app.readers.present.wanted if app.readers.present else None) == (0, True)

    play(admin, script)


def test_stopping_and_going_on(admin: FakeAdmin) -> None:
    """`p`: what comes meanwhile waits and is counted."""

    async def script(app: ViewApp) -> None:
        await press(app, "p")
        admin.streams[0].put(event("rows", {"rows": [row(1), row(2)]}, "3f9c.0-2"))
        await settled(app, lambda: len(app.exchanges.pending) == 2)
        assert "stopped, 2 wait" in screen_text(app)
        await press(app, "p")
        assert named(app) == ["0-1", "0-2"]

    play(admin, script)


# ---- details


def frame(side: str, topic: str) -> dict[str, Any]:
    data = bytes([0, len(topic), *topic.encode()])
    return {"side": side, "bytes": len(data) + 4, "kept": len(data), "form": "whole", "withheld": "",
            "data": b64encode(data).decode(), "decode_error": "", "next": None,
            "steps": [[0, len(data), 1, "topic_data[0].name", "value", "STRING", topic]]}  # fmt: skip


def test_bytes_of_both_sides(admin: FakeAdmin) -> None:
    """`b` shows what the client sent, what the broker got, or both; what differs is marked in the tree."""
    admin.answers["GET", "/api/exchanges/0-1"] = 200, {
        "id": "0-1", "event": {"api": "Produce", "version": 9, "outcome": "answered"}, "records": [], "response": None,
        "request": {"client": frame("client", "orders"), "broker": frame("broker", "prod.orders"),
                    "changed": [{"path": "topic_data[0].name", "client": [0, 8], "broker": [0, 13]}]},
    }  # fmt: skip

    async def script(app: ViewApp) -> None:
        admin.streams[0].put(event("rows", {"rows": [row(1)]}, "3f9c.0-1"))
        await settled(app, lambda: len(app.store) == 1)
        await press(app, "enter")
        await settled(app, lambda: app.details.detail)
        await press(app, "G")
        same_screen(app, HERE / "details_both.txt")
        await press(app, "b")
        assert ("client, 12 bytes" in screen_text(app), "broker, 17 bytes" in screen_text(app)) == (True, False)
        await press(app, "b")
        assert ("client, 12 bytes" in screen_text(app), "broker, 17 bytes" in screen_text(app)) == (False, True)
        assert '"prod.orders"' in screen_text(app)

    play(admin, script)


def test_an_exchange_that_is_gone(admin: FakeAdmin) -> None:
    """The proxy's words are shown."""
    admin.answers["GET", "/api/exchanges/0-1"] = admin.problem(410, "exchange_gone", "0-1 is not kept any more")

    async def script(app: ViewApp) -> None:
        admin.streams[0].put(event("rows", {"rows": [row(1)]}, "3f9c.0-1"))
        await settled(app, lambda: len(app.store) == 1)
        await press(app, "enter")
        await settled(app, lambda: app.message[0])
        assert "0-1 is not kept any more" in screen_text(app)

    play(admin, script)


# ---- screens


RULE = {"name": "third write fails", "kind": "error", "origin": "api", "position": "<api>:2:3", "enabled": True,
        "in_force": True, "stage": None, "mode": "enforce", "matched": 1204, "fired": 1, "applied": 1, "held": 0,
        "ttl_left": 42.3, "warnings": [], "rule": {"name": "third write fails", "kind": "error"}}  # fmt: skip


def test_rules_are_listed_and_switched(admin: FakeAdmin) -> None:
    """With their counters; off and on, removed when asked back, all faults off with K."""
    admin.answers["GET", "/api/rules"] = 200, {"rules": [RULE, {**RULE, "name": "slow"}], "faults_disabled": False}
    for action in ("disable", "reset", "resume"):
        admin.answers["POST", f"/api/rules/slow/{action}"] = 200, {"resumed": 2}
    admin.answers["DELETE", "/api/rules/slow"] = 200, {}
    admin.answers["POST", "/api/faults/disable"] = (
        200,
        {"disabled": True, "faults": [{}, {}], "unaffected": [], "more": 0},
    )
    admin.answers["GET", "/api/faults"] = 200, {"disabled": False}

    async def script(app: ViewApp) -> None:
        await press(app, "4")
        await settled(app, lambda: "third write" in screen_text(app))
        await press(app, "enter")
        same_screen(app, HERE / "rules.txt")
        await press(app, "j", "t")
        await settled(app, lambda: app.message[0])
        assert '"slow" is off' in screen_text(app)
        await press(app, "R", "a")
        await settled(app, lambda: admin.of("POST", "/api/rules/slow/resume"))
        await press(app, "d", "=y", "enter", "d", "=yes", "enter")
        await settled(app, lambda: admin.of("DELETE", "/api/rules/slow"))
        await press(app, "K")
        await settled(app, lambda: "disable all faults" in screen_text(app))
        await press(app, "y", "enter")
        assert not admin.of("POST", "/api/faults/disable")
        await press(app, "K")
        await settled(app, lambda: "disable all faults" in screen_text(app))
        await press(app, "=yes", "enter")
        await settled(app, lambda: "2 faults disabled" in screen_text(app))
        assert len(admin.of("DELETE", "/api/rules/slow")) == 1

    play(admin, script)


def test_connections_and_captures(admin: FakeAdmin) -> None:
    """Recycled and closed, followed, recorded and ended."""
    connection = {"id": 17, "client": "10.1.4.22:50122", "listener": "outside", "node": 2, "broker": "broker-2:9092",
                  "principal": "etl", "software": "librdkafka/2.10.0", "in_flight": 1, "client_bytes": 41_200_000,
                  "broker_bytes": 400_000, "since": "2026-11-21T14:02:51Z", "outdated": True}  # fmt: skip
    capture = {"name": "view.pcapng", "file": "/x/view.pcapng", "state": "running", "exchanges": 3, "size": 1200,
               "seconds": 2.0, "dropped": 0, "filter": "", "stopped": None}  # fmt: skip
    admin.answers["GET", "/api/connections"] = 200, {"connections": [connection]}
    for asked in (("POST", "/api/connections/17/recycle"), ("DELETE", "/api/connections/17")):
        admin.answers[asked] = 200, connection
    admin.answers["GET", "/api/captures"] = 200, {"captures": [capture]}
    admin.answers["POST", "/api/captures"] = admin.answers["DELETE", "/api/captures/view.pcapng"] = 200, capture

    async def script(app: ViewApp) -> None:
        await press(app, "5")
        await settled(app, lambda: "10.1.4.22" in screen_text(app))
        same_screen(app, HERE / "connections.txt")
        await press(app, "j", "R", "=yes", "enter", "X", "=yes", "enter")
        await settled(app, lambda: admin.of("DELETE", "/api/connections/17"))
        assert admin.of("POST", "/api/connections/17/recycle")
        await press(app, "6")
        await settled(app, lambda: "view.pcapng" in screen_text(app))
        await press(app, "S", "enter")
        await settled(app, lambda: admin.of("POST", "/api/captures"))
        await press(app, "g", "E")
        await settled(app, lambda: admin.of("DELETE", "/api/captures/view.pcapng"))
        admin.stream().put(event("hello", {**HELLO, "filter": "connection == 17"}))
        await press(app, "5", "enter")
        await settled(app, lambda: len(admin.listened) == 2)
        assert admin.listened[1].query["filter"] == "connection == 17"

    play(admin, script)


def test_a_reader_without_the_right_to_change_is_told_so(admin: FakeAdmin) -> None:
    """By the proxy's own words, and in the head."""
    admin.streams[0].get()
    admin.streams[0].put(event("hello", {**HELLO, "may_write": False}))
    admin.answers["GET", "/api/rules"] = 200, {"rules": [RULE], "faults_disabled": False}
    refusal = admin.problem(403, "read_only", "this token may only look")
    admin.answers["POST", "/api/rules/third%20write%20fails/disable"] = refusal

    async def script(app: ViewApp) -> None:
        assert "read only" in screen_text(app).splitlines()[0]
        await press(app, "4")
        await settled(app, lambda: "third write" in screen_text(app))
        await press(app, "g", "t")
        await settled(app, lambda: "this token may only look" in screen_text(app))

    play(admin, script)


# ---- held


HELD = {"id": "17-3", "rule": "hold orders", "rules": ["hold orders"], "at": "request",
        "since": "2026-11-21T14:22:07Z", "ends_in": 7.6, "longest": 590.0,
        "exchange": {"connection": 17, "api": "Produce", "version": 9}, "on_timeout": "pass", "revision": 1,
        "behind": 2, "bytes": 210, "editable": True, "why_not": None, "claimed_by": None, "gone": None}  # fmt: skip


@pytest.fixture
def holding(admin: FakeAdmin) -> FakeAdmin:
    """A proxy that holds one frame."""
    admin.answers["GET", "/api/held"] = 200, {"held": [HELD], "max_frames": 20, "passed_over": 0}
    admin.answers["GET", "/api/held/17-3"] = 200, {**HELD, "frame": frame("client", "orders")}
    for action in ("resume", "answer", "drop", "close", "extend", "claim"):
        admin.answers["POST", f"/api/held/17-3/{action}"] = 200, HELD
    admin.answers["POST", "/api/held/17-3/preview"] = 200, frame("client", "bills")
    admin.answers["POST", "/api/held/resume"] = 200, {"resumed": 3}
    return admin


def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have the view's editor be this shell script, which gets the file's name."""
    file = tmp_path / "editor"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(stat.S_IRWXU)
    monkeypatch.setenv("EDITOR", str(file))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setattr(ViewApp, "suspend", lambda app: nullcontext())


def test_who_sends_no_more_is_marked_where_frames_are_held(holding: FakeAdmin) -> None:
    """On a screen that has room for it."""
    holding.answers["GET", "/api/held"] = 200, {
        "held": [{**HELD, "client_ended": True}, {**HELD, "id": "17-4", "client_ended": False}],
        "max_frames": 20, "passed_over": 0,
    }  # fmt: skip

    async def script(app: ViewApp) -> None:
        await press(app, "3")
        await settled(app, lambda: "17-4" in screen_text(app))
        lines = [line for line in screen_text(app).splitlines() if "hold orders" in line]
        assert ["ended" in line for line in lines] == [True, False]

    play(holding, script, (140, 24))


def test_question_keeps_the_focus_when_its_screen_is_read_again(holding: FakeAdmin) -> None:
    """The stream reports a change of the shown list, or a click takes the focus, while a line is asked for."""

    async def script(app: ViewApp) -> None:
        await press(app, "3", "/", "=17")
        asked = len(holding.of("GET", "/api/held"))
        holding.streams[0].put(event("held", {"held": 1}, "3f9c.0-2"))
        await settled(app, lambda: len(holding.of("GET", "/api/held")) > asked)
        assert app.focused is app.questions.input
        app.panes["held"].shown()
        await press(app, "j")
        assert app.focused is app.questions.input
        await press(app, "enter")
        assert not app.questions.open

    play(holding, script)


def test_held_frames_are_listed_and_decided(holding: FakeAdmin) -> None:
    """Resumed, answered, dropped, closed, held longer, all at once: each with the frame's revision."""

    async def script(app: ViewApp) -> None:
        await press(app, "3")
        await settled(app, lambda: '"orders"' in screen_text(app))
        same_screen(app, HERE / "held.txt")
        await press(app, "a", "x", "plus")
        assert "choose a line first: j or k" in screen_text(app)
        await press(app, "j", "a")
        await settled(app, lambda: holding.of("POST", "/api/held/17-3/resume"))
        await press(app, "s", "=NOT_LEADER_OR_FOLLOWER", "enter")
        await settled(app, lambda: holding.of("POST", "/api/held/17-3/answer"))
        await press(app, "x", "enter", "X", "=yes", "enter", "plus", "A", "=yes", "enter")
        await settled(app, lambda: holding.of("POST", "/api/held/resume"))

    play(holding, script)
    assert holding.of("POST", "/api/held/17-3/resume") == [{"revision": 1, "who": user()}]
    assert holding.of("POST", "/api/held/17-3/answer") == [
        {"revision": 1, "who": user(), "error": "NOT_LEADER_OR_FOLLOWER"}
    ]
    assert holding.of("POST", "/api/held/17-3/drop") == [{"revision": 1, "who": user(), "connection": "stall"}]
    assert holding.of("POST", "/api/held/17-3/close") == [{"revision": 1, "who": user(), "close_with": "fin"}]
    assert holding.of("POST", "/api/held/17-3/extend") == [{"by": "60s", "who": user()}]


def test_editor_of_a_held_frame_extends_its_hold(
    holding: FakeAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By claims until the editor ends."""
    monkeypatch.setattr(held_pane, "CLAIM", 0.01)
    editor(tmp_path, monkeypatch, "while [ ! -e done ]; do sleep 0.01; done")
    monkeypatch.chdir(tmp_path)
    claims, claim = ("POST", "/api/held/17-3/claim"), HeldPane.claim

    def claimed(pane: HeldPane, admin: Admin, ident: str) -> None:
        claim(pane, admin, ident)
        if len(holding.of(*claims)) >= 3:
            (tmp_path / "done").touch()

    monkeypatch.setattr(HeldPane, "claim", claimed)

    async def script(app: ViewApp) -> None:
        await press(app, "3")
        await settled(app, lambda: '"orders"' in screen_text(app))
        await press(app, "j", "e")
        await settled(app, lambda: "no changes" in said(app))

    play(holding, script)
    assert holding.of(*claims)[:3] == [{"who": user()}] * 3


SECOND = ("y", "enter", "same")


@pytest.mark.parametrize("second", SECOND)
def test_two_keys_in_the_list_change_nothing(holding: FakeAdmin, second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request to send again is only requested, and refused without its API.

    Each key is the first one with one of the second keys; with KPROXY_TEST_ALL=1 with each of them.
    """
    keys = [key for use in KEYS for key in use.keys.split(",")]
    if not os.environ.get("KPROXY_TEST_ALL"):
        keys = keys[SECOND.index(second) :: len(SECOND)]
    monkeypatch.setattr(ViewApp, "edited", lambda *_: None)
    monkeypatch.setattr(ViewApp, "exit", lambda app: None)
    refused = {"error": {"code": "confirm_first", "message": "Produce changes: it", "mistakes": []}}
    holding.answers["POST", "/api/exchanges/0-1/send"] = 409, refused
    holding.answers["GET", "/api/rules"] = 200, {"rules": [RULE], "faults_disabled": False}

    async def script(app: ViewApp) -> None:
        holding.streams[0].put(event("rows", {"rows": [row(1)]}, "3f9c.0-2"))
        await settled(app, lambda: len(app.store) == 1)
        for first in keys:
            app.questions.close()
            app.questions.meant = None
            app.show("exchanges")
            await press(app, "g", first, first if second == "same" else second)
            await settled(app, lambda: True)

    play(holding, script)
    changes = [one for one in holding.asked if one.method != "GET" and not one.path.endswith("/send")]
    assert changes == []
    assert all(body == {} for body in holding.of("POST", "/api/exchanges/0-1/send"))


def test_a_held_frame_is_edited(holding: FakeAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the editor as YAML: only what was changed is sent, first to be looked at, then with `a`; `V` forgets it."""
    editor(tmp_path, monkeypatch, 'cp "$1" seen.yaml; sed -i "s/: orders/: bills/" "$1"')
    monkeypatch.chdir(tmp_path)
    change = [{"path": "topic_data[0].name", "value": "bills"}]

    async def script(app: ViewApp) -> None:
        await press(app, "3")
        await settled(app, lambda: '"orders"' in screen_text(app))
        await press(app, "j", "e")
        await settled(app, lambda: '"bills"' in screen_text(app))
        assert holding.of("POST", "/api/held/17-3/preview") == [{"revision": 1, "set": change}]
        await press(app, "V", "a")
        await settled(app, lambda: len(holding.of("POST", "/api/held/17-3/resume")) == 1)
        await press(app, "e")
        await settled(app, lambda: '"bills"' in screen_text(app))
        await press(app, "a")
        await settled(app, lambda: len(holding.of("POST", "/api/held/17-3/resume")) == 2)

    play(holding, script)
    assert holding.of("POST", "/api/held/17-3/resume") == [
        {"revision": 1, "who": user()}, {"revision": 1, "who": user(), "set": change},
    ]  # fmt: skip
    assert yaml.safe_load((tmp_path / "seen.yaml").read_text()) == {"topic_data[0].name": "orders"}
    assert "Produce v9 request of connection 17" in (tmp_path / "seen.yaml").read_text()


@pytest.mark.parametrize(
    ("script", "words"),
    [
     ("exit 3", "ended with 3: nothing was done"), (":", "no changes"), ('echo "[" > "$1"', "expected YAML"),
     ('echo "a: 1" > "$1"', "topic_data[0].name is missing")],
)  # fmt: skip
def test_edits_that_are_none(
    holding: FakeAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    """Each is said, and nothing is sent."""
    editor(tmp_path, monkeypatch, script)

    async def look(app: ViewApp) -> None:
        await press(app, "3")
        await settled(app, lambda: '"orders"' in screen_text(app))
        await press(app, "j", "e")
        await settled(app, lambda: app.message[0])
        assert words in said(app)

    play(holding, look)
    assert holding.of("POST", "/api/held/17-3/preview") == []


def test_an_edit_that_the_proxy_refuses(holding: FakeAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mistake and place are shown; the next edit goes on where this one ended."""
    editor(tmp_path, monkeypatch, 'sed -i "s/: orders/: bills/" "$1"; cp "$1" seen.yaml')
    monkeypatch.chdir(tmp_path)
    mistake = {"where": "topic_data[0].name", "message": "7 is no text"}
    refusal = {"error": {"code": "invalid_edit", "message": "one mistake", "mistakes": [mistake]}}
    holding.answers["POST", "/api/held/17-3/preview"] = 422, refusal

    async def script(app: ViewApp) -> None:
        await press(app, "3")
        await settled(app, lambda: '"orders"' in screen_text(app))
        for _ in range(2):
            await press(app, "j", "e")
            await settled(app, lambda: "topic_data[0].name: 7 is no text" in screen_text(app))

    play(holding, script)
    assert "bills" in (tmp_path / "seen.yaml").read_text()


def test_holding_from_the_list(holding: FakeAdmin) -> None:
    """`i` puts a rule with a filter for ten minutes, when asked back; `I` turns it off and on."""
    holding.answers["POST", "/api/rules"] = 200, {}

    async def script(app: ViewApp) -> None:
        await press(app, "i", "=~k joingroup", "enter")
        assert "hold ~k joingroup of all clients?" in screen_text(app)
        await press(app, "y")
        await settled(app, lambda: holding.of("POST", "/api/rules"))
        name = app.keys.rule_name()
        for action in ("disable", "enable"):
            path = f"/api/rules/{name.replace(' ', '%20')}/{action}"
            holding.answers["POST", path] = 200, {}
            await press(app, "I", "=yes", "enter")
            await settled(app, lambda: holding.of("POST", path))  # noqa: B023

    play(holding, script)
    (document,) = holding.of("POST", "/api/rules")
    assert [one["kind"] for one in document["rules"]] == ["intercept"]
    assert document["rules"][0]["filter"] == "~k joingroup"
    asked = next(one for one in holding.asked if one.path == "/api/rules")
    assert asked.query == {"ttl": "10m", "replace": "true", "page": holding.listened[0].query["page"]}


def test_a_rule_is_made_of_an_exchange(admin: FakeAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`m`: the editor has a document that `kproxy check` takes; it is added when asked back."""
    editor(tmp_path, monkeypatch, 'cp "$1" seen.yaml; sed -i "/mode: dry_run/d" "$1"')
    monkeypatch.chdir(tmp_path)
    admin.answers["POST", "/api/check"] = 200, {"mistakes": [], "warnings": [], "rules": 1,
                                                "matches": {"of": 3912, "matched": 214, "fired": 3}}  # fmt: skip
    admin.answers["POST", "/api/rules"] = 200, {}

    async def script(app: ViewApp) -> None:
        admin.streams[0].put(event("rows", {"rows": [row(1, client="et*l")]}, "3f9c.0-1"))
        await settled(app, lambda: len(app.store) == 1)
        await press(app, "m")
        await settled(app, lambda: app.questions.meant)
        assert "of 3912 kept exchanges it matches 214" in screen_text(app)
        await press(app, "y")
        await settled(app, lambda: "the rule is in force" in screen_text(app))

    play(admin, script)
    (rule,) = yaml.safe_load((tmp_path / "seen.yaml").read_text())["rules"]
    assert rule["match"] == {"api": "Produce", "client_id": r"/et\*l/", "topic": "orders", "partition": 3}
    (added,) = admin.of("POST", "/api/rules")
    assert "mode" not in yaml.safe_load(added)["rules"][0]
    assert json.dumps(added)


# ---- send again

SENT = {"id": "0-9", "again_of": "0-1", "outcome": "answered", "reason": "", "notes": ["sent without idempotence"],
        "seconds": 0.0025}  # fmt: skip


def test_a_request_is_sent_again(admin: FakeAdmin) -> None:
    """Asked back by name where it changes something; then the new exchange is shown, which says what it is from."""

    async def script(app: ViewApp) -> None:
        detail = {"id": "0-9", "again_of": "0-1", "event": {"api": "Produce", "version": 9, "outcome": "answered"}}
        admin.answers["GET", "/api/exchanges/0-9"] = 200, detail
        asks = 'Produce changes what is stored or set: to send it again, say so with {"confirm": "Produce"}'
        refused = {"error": {"code": "confirm_first", "message": asks, "mistakes": []}}
        admin.answers["POST", "/api/exchanges/0-1/send"] = 409, refused
        admin.streams[0].put(event("rows", {"rows": [row(1, records=7), row(9, again_of="0-1")]}, "3f9c.0-2"))
        await settled(app, lambda: len(app.store) == 2)
        assert "sent again" in screen_text(app)
        await press(app, "g", "r")
        await settled(app, lambda: "again?" in said(app))
        asked = (
            "Produce changes what is stored or set: send Produce about orders[3] with 7 records again? type Produce:"
        )
        assert asked in said(app)
        admin.answers["POST", "/api/exchanges/0-1/send"] = 200, SENT
        await press(app, "=Produce", "enter")
        await settled(app, lambda: "answered in" in said(app))
        assert "sent again: answered in 2.50ms; sent without idempotence" in said(app)
        await settled(app, lambda: app.details.detail)
        assert app.shown == "details"
        assert "sent again from 0-1" in screen_text(app)
        bodies = [one.body for one in admin.asked if one.path == "/api/exchanges/0-1/send"]
        assert bodies == [{}, {"confirm": "Produce"}]

    play(admin, script, size=(160, 24))


def test_nothing_is_sent_that_was_not_meant(admin: FakeAdmin) -> None:
    """And what the proxy refuses is said."""

    async def script(app: ViewApp) -> None:
        refused = {"error": {"code": "confirm_first", "message": "Produce changes: it", "mistakes": []}}
        admin.answers["POST", "/api/exchanges/0-1/send"] = 409, refused
        admin.streams[0].put(event("rows", {"rows": [row(1)]}, "3f9c.0-2"))
        await settled(app, lambda: len(app.store) == 1)
        await press(app, "r")
        await settled(app, lambda: "send Produce about orders[3] again?" in said(app))
        await press(app, "=y", "enter")
        assert len([one for one in admin.asked if one.method == "POST"]) == 1
        gone = {"error": {"code": "exchange_gone", "message": "exchange 0-1 is not kept any more", "mistakes": []}}
        admin.answers["POST", "/api/exchanges/0-1/send"] = 410, gone
        await press(app, "r")
        await settled(app, lambda: "not kept any more" in said(app))
        assert app.shown == "exchanges"

    play(admin, script)
