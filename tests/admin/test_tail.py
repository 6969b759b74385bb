"""`GET /api/tail`: a stream of what passes, with what was missed, and its end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest
import trio
from starlette.types import Message

from kproxy.admin import responses
from kproxy.admin.guard import AdminTokens
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.record.exchange import Depth
from kproxy.record.fanout import Fanout
from kproxy.record.live_view.config import ViewConfig
from tests.support.exchange_factory import exchange


class Listener:
    """A client of the stream: what it was sent, and how it goes."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.came = trio.Event()
        self.gone = trio.Event()
        self.reads = trio.Event()
        self.reads.set()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        self.sent.append(message)
        self.came.set()

    async def lines(self, count: int) -> list[Any]:
        """The first so many, once they are there."""
        while len(found := self._lines()) < count:
            self.came = trio.Event()
            await self.came.wait()
        return found

    def _lines(self) -> list[Any]:
        body = b"".join(message.get("body", b"") for message in self.sent)
        return [json.loads(line) for line in body.splitlines() if line]


@asynccontextmanager
async def listening(api: Any, query: str = "", token: str = "") -> AsyncIterator[Listener]:
    listener = Listener()
    shown = [(b"authorization", f"Bearer {token}".encode())] if token else []
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.1"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": "/api/tail", "raw_path": b"/api/tail", "query_string": query.encode(),
        "root_path": "", "headers": [(b"host", b"127.0.0.1:9190"), *shown], "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 9190),
    }  # fmt: skip
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(api.app, scope, listener.receive, listener.send)
            yield listener
            listener.gone.set()
            listener.reads.set()


def fanout_of(api: Any) -> Fanout:
    found: Fanout = api.proxy.server.taps.fanout
    return found


def produced(topic: str, number: int = 1) -> Any:
    request = {"acks": 1, "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": b""}]}]}
    return exchange("Produce", 9, request, {}, at=monotonic(), number=number)


@pytest.mark.trio
async def test_what_fits_the_filter_is_told(api: Any) -> None:
    """As the data of a request event, after a line that says that nothing is missed from now on."""
    async with listening(api, "filter=~k+produce+~t+^orders") as listener:
        assert await listener.lines(1) == [{"listening": "api == Produce and topic ~ ^orders"}]
        for topic in ("bills", "orders"):
            fanout_of(api).take(produced(topic))
        _, told = await listener.lines(2)

    assert [topic["topic"] for topic in told["request"]["topics"]] == ["orders"]
    assert (told["request"]["api"], told["request"]["client_id"]) == ("Produce", "tester")
    assert told["request"]["request_in"].startswith("20")
    assert dict(listener.sent[0]["headers"])[b"content-type"] == b"application/x-ndjson"


@pytest.mark.trio
async def test_messages_come_with_body(api: Any) -> None:
    async with listening(api, "body=true") as listener:
        await listener.lines(1)
        (sink,) = fanout_of(api).sinks
        assert sink.depth(PRODUCE, 9) is Depth.FULL
        fanout_of(api).take(produced("orders"))
        _, told = await listener.lines(2)
    assert told["request"]["api"] == "Produce"
    assert told["request"]["request"]["topic_data"][0]["partition_data"][0]["records"] == []
    assert told["request"]["response"]["responses"] == []
    api.backend.use_view(ViewConfig(records=False))
    refused = await api("GET", "/api/tail?body=true")
    assert (refused.status, refused.code) == (422, "invalid_query")
    assert "body: it has records" in refused.json["error"]["message"]


@pytest.mark.trio
async def test_the_sink_goes_with_the_listener(api: Any) -> None:
    """While nobody listens nobody looks."""
    async with listening(api) as listener:
        await listener.lines(1)
        assert len(fanout_of(api).sinks) == 1

    assert fanout_of(api).sinks == ()


@pytest.mark.trio
async def test_who_reads_too_slowly_is_told_what_was_missed(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traffic does not wait; what fits is told in order."""
    async with listening(api) as listener:
        await listener.lines(1)
        (sink,) = fanout_of(api).sinks
        monkeypatch.setattr(sink, "most", 3)
        listener.reads = trio.Event()
        for number in range(1, 11):
            fanout_of(api).take(produced("orders", number))
        listener.reads.set()
        found = await listener.lines(5)

    assert [line["request"]["correlation_id"] for line in found[1:4]] == [1, 2, 3]
    assert found[4] == {"dropped": 7, "apis": {"Produce": 7}}


@pytest.mark.trio
async def test_what_the_filter_cannot_judge_is_told(api: Any, autojump_clock: object) -> None:
    """With the reason; and an empty line comes now and then."""
    async with listening(api, "filter=~key+x") as listener:
        await listener.lines(1)
        seen = produced("orders")
        seen.request.data = seen.request.data[:12]
        fanout_of(api).take(seen)
        _, told = await listener.lines(2)

    assert (told["unknown"], told["why"][:32]) == (1, "the request cannot be read: Prod")


@pytest.mark.trio
async def test_who_asks_only_for_the_head_gets_no_stream(api: Any) -> None:
    """It would never end."""
    with trio.fail_after(60):
        answer = await api("HEAD", "/api/tail")

    assert (answer.status, answer.headers["content-type"], answer.body) == (200, "application/x-ndjson", b"")
    assert fanout_of(api).sinks == ()


@pytest.mark.trio
async def test_a_bad_filter(api: Any) -> None:
    """422 with the place."""
    refused = await api("GET", "/api/tail?filter=topc")

    assert (refused.status, refused.code) == (422, "invalid_query")
    assert 'unknown field "topc", did you mean "topic"?' in refused.json["error"]["message"]


@pytest.mark.trio
async def test_too_many_listeners(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looks at every exchange, so they are few."""
    monkeypatch.setattr(responses, "MOST_LISTENERS", 1)
    async with listening(api) as listener:
        await listener.lines(1)
        refused = await api("GET", "/api/tail")

    assert (refused.status, refused.code) == (429, "too_many_listeners")


@pytest.mark.trio
async def test_it_is_guarded(make_api: Callable[..., Any]) -> None:
    """As everything that tells something."""
    refused = await make_api(token="secret")("GET", "/api/tail")

    assert (refused.status, refused.code) == (401, "unauthorized")


@pytest.mark.parametrize(("shown", "left"), [("full", "read"), ("read", "full")])
@pytest.mark.trio
async def test_a_stream_ends_with_its_token(make_api: Callable[..., Any], shown: str, left: str) -> None:
    """In order, and that of the token that stays goes on; nothing is listened to for whoever may not hear it."""
    tokens = {"full": "secret", "read": "look"}
    made = make_api(token="secret", read="look")
    async with listening(made, token=tokens[left]) as stays, listening(made, token=tokens[shown]) as ends:
        await stays.lines(1)
        await ends.lines(1)
        made.backend.tokens.use(AdminTokens(**(tokens | {shown: "another"})))
        with trio.fail_after(60):
            while ends.sent[-1].get("more_body") is not False:
                ends.came = trio.Event()
                await ends.came.wait()
        fanout_of(made).take(produced("orders"))

        _, told = await stays.lines(2)
    assert told["request"]["api"] == "Produce"
    assert len(ends._lines()) == 1
    assert not made.backend.tokens.streams


@pytest.mark.trio
async def test_a_stream_without_a_token_ends_when_one_is_asked_for(api: Any) -> None:
    async with listening(api) as listener:
        await listener.lines(1)
        api.backend.tokens.use(AdminTokens("secret"))
        with trio.fail_after(60):
            while listener.sent[-1].get("more_body") is not False:
                listener.came = trio.Event()
                await listener.came.wait()
    assert (await api("GET", "/api/tail")).code == "unauthorized"
