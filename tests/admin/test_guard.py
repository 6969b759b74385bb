"""Who may use the API, and what a request must look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from starlette.requests import Request

from kproxy.admin import limits
from kproxy.admin.api import OPERATIONS
from kproxy.admin.guard import AdminTokens, make_guard
from kproxy.admin.limits import LONGEST_BODY, LONGEST_READ
from kproxy.admin.operation import Operation
from kproxy.admin.problem import Problem
from kproxy.record.live_view.config import ViewConfig


@pytest.mark.trio
async def test_hosts_of_other_machines_are_refused(api: Any) -> None:
    """A page that reaches loopback by a name of its own (DNS rebinding) gets nothing."""
    for host in ("localhost:9190", "[::1]:9190", "127.0.0.1"):
        assert (await api("GET", "/api/rules", host=host)).status == 200
    for path in ("/api/rules", "/api/openapi.json", "/metrics"):
        refused = await api("GET", path, host="evil.example:9190")
        assert (refused.status, refused.code) == (403, "foreign_host")


LOOK_ALIKES = """
localhost. [::1].evil.example [::1]:1:2 127.0.0.1:80@evil.example 127.0.0.1:evil 127.0.0.1,evil.example 127.1 0.0.0.0
evil.example:127.0.0.1 :9190 127.0.0.1:9190:9190 localhost;x [127.0.0.1] 127.0.0.1/evil
"""


@pytest.mark.parametrize("host", [*LOOK_ALIKES.split(), ""])
@pytest.mark.trio
async def test_what_only_looks_like_this_machine_is_refused(api: Any, host: str) -> None:
    """The whole header has to be a name of it, with or without a port."""
    assert (await api("GET", "/api/rules", host=host)).code == "foreign_host"


@pytest.mark.parametrize("path", ["/api/rules/", "/api/sources/", "/livez/", "/metrics/", "/api/"])
@pytest.mark.trio
async def test_nothing_is_answered_with_a_way_elsewhere(api: Any, path: str) -> None:
    """Least of all before the guard has looked, and with the name that the request has given itself."""
    answer = await api("GET", path, host="evil.example")

    assert answer.status in (403, 404)
    assert "location" not in answer.headers


@pytest.mark.trio
async def test_each_of_several_headers_is_looked_at(api: Any) -> None:
    """No browser sends two; whoever does is refused for either."""
    own, site = (b"origin", b"http://127.0.0.1:9190"), (b"sec-fetch-site", b"same-origin")
    for headers in ([own, (b"origin", b"http://evil.example")], [site, (b"sec-fetch-site", b"cross-site")]):
        request = Request({"type": "http", "headers": [(b"host", b"127.0.0.1:9190"), *headers]})
        with pytest.raises(Problem, match=r"evil\.example|cross-site"):
            make_guard(AdminTokens(), "127.0.0.1")(request)


@pytest.mark.trio
async def test_pages_of_other_origins_are_refused(api: Any) -> None:
    """Also those of another port of this machine; kproxy's own may."""
    for origin in ("http://evil.example", "http://127.0.0.1:8080", "null"):
        refused = await api("POST", "/api/faults/disable", origin=origin)
        assert (refused.status, refused.code) == (403, "foreign_origin")
    assert (await api("POST", "/api/faults/disable", origin="http://127.0.0.1:9190")).status == 200


@pytest.mark.trio
async def test_a_token_is_asked_for(make_api: Callable[..., Any]) -> None:
    """For everything below /api; the Host header then matters no more."""
    api = make_api(token="s3cret")
    refused = await api("GET", "/api/version")

    assert (refused.status, refused.code, refused.headers["www-authenticate"]) == (401, "unauthorized", "Bearer")
    assert (await api("GET", "/api/version", authorization="Bearer wrong")).status == 401
    assert (await api("GET", "/api/version", authorization="Bearer s3cret", host="kproxy.example")).status == 200
    assert (await api("GET", "/livez")).status == 200


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
@pytest.mark.trio
async def test_what_a_form_can_send_is_refused(api: Any, kind: str | None) -> None:
    """On loopback too, with a body or without."""
    for method, path in (("POST", "/api/faults/disable"), ("POST", "/api/rules/x"), ("PUT", "/api/rules")):
        refused = await api(method, path, "{}", kind=kind)
        assert (refused.status, refused.code) == (415, "unsupported_media_type")
    assert (await api("POST", "/api/faults/disable", kind="application/json; charset=utf-8")).status == 200
    assert (await api("POST", "/api/faults/disable", kind="application/yaml")).status == 415


@pytest.mark.parametrize("pieces", [0, 65536])
@pytest.mark.trio
async def test_a_body_has_a_limit(api: Any, pieces: int) -> None:
    """Said by its length, or found while it comes; it is not kept."""
    refused = await api("PUT", "/api/rules", " " * (LONGEST_BODY + 1), pieces=pieces)

    assert (refused.status, refused.code) == (413, "too_large")
    assert (await api("PUT", "/api/rules", '{"rules": []}' + " " * (LONGEST_BODY - 13), pieces=pieces)).status == 200


@pytest.mark.trio
async def test_a_body_that_does_not_come_is_not_waited_for(
    make_api: Callable[..., Any], autojump_clock: trio.testing.MockClock
) -> None:
    """After LONGEST_READ, by the clock of trio."""
    asked: list[str] = []

    async def never() -> Any:
        asked.append("more")
        await trio.sleep_forever()

    refused = await make_api()("PUT", "/api/rules", '{"rul', receive=never)

    assert (refused.status, refused.code) == (408, "too_slow")
    assert refused.headers["connection"] == "close"
    assert trio.current_time() == pytest.approx(LONGEST_READ)


@pytest.mark.trio
async def test_who_goes_away_before_the_end_of_the_body_is_no_mistake_of_ours(
    api: Any, logged: list[dict[str, Any]]
) -> None:
    """Nothing is logged as an error, however often that happens."""

    async def gone() -> Any:
        return {"type": "http.disconnect"}

    before = len(logged)
    refused = await api("PUT", "/api/rules", '{"rul', receive=gone)

    assert (refused.status, refused.code) == (408, "too_slow")
    assert not [line for line in logged[before:] if line["level"] == "error"]


@pytest.mark.trio
async def test_all_bodies_together_have_a_limit(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes too much is refused; when the others are read there is room again."""
    monkeypatch.setattr(limits.BODIES, "most", 1000)
    refused = await api("PUT", "/api/rules", " " * 1001)
    assert (refused.status, refused.code) == (429, "too_many_bodies")

    assert (await api("PUT", "/api/rules", '{"rules": []}' + " " * 900)).status == 200


@pytest.mark.trio
async def test_a_document_counts_until_its_turn_is_over(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes wait for each other, and what a document is read into is ten times as large as its body."""
    monkeypatch.setattr(limits.BODIES, "most", 1000)
    body, answers = '{"rules": []}' + " " * 500, []

    async def put() -> None:
        answers.append((await api("PUT", "/api/rules", body)).status)

    async with trio.open_nursery() as nursery, api.proxy.keeper.changing:
        nursery.start_soon(put)
        with trio.fail_after(60):
            while api.proxy.keeper.changing.statistics().tasks_waiting == 0:  # noqa: ASYNC110  # a lock has no event
                await trio.sleep(0.001)
        assert (await api("PUT", "/api/rules", body)).code == "too_many_bodies"
        assert answers == []
    assert answers == [200]
    assert limits.BODIES.total == 0
    assert (await api("PUT", "/api/rules", body)).status == 200


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if "view_off" in one.refusals], ids=lambda one: one.name
)
@pytest.mark.trio
async def test_operation_of_a_disabled_view_is_refused(api: Any, operation: Operation) -> None:
    """Before its query and its body are read."""
    api.backend.view = ViewConfig(enabled=False)
    refused = await api(operation.method, operation.path.replace("{id}", "0-1"), kind=None)

    assert (refused.status, refused.code) == (403, "view_off")
    assert refused.headers.get("connection") == ("close" if operation.name == "open_source" else None)


@pytest.mark.trio
async def test_change_without_room_for_its_response_is_refused(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is changed."""
    monkeypatch.setattr(limits.RESPONSES, "most", -1)

    assert (await api("PUT", "/api/rules", '{"rules": [{"name": "new", "kind": "tiny"}]}')).code == "too_many_answers"
    assert list(api.proxy.keeper.store.stored_rules) == ["base"]


@pytest.mark.trio
async def test_host_header_that_is_malformed_is_refused(api: Any) -> None:
    """An open path ignores the Host header."""
    assert (await api("PATCH", "/livez", host="[::")).status == 405
    assert (await api("GET", "/nothing", host="[")).status == 403
    assert (await api("GET", "/api/rules", host="[")).status == 403


@pytest.mark.parametrize("path", ["/nothing", "/api/rules", "/api/x%2Fy", "/metrics", "/api/openapi.json", "/livez/"])
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "OPTIONS"])
@pytest.mark.trio
async def test_guard_without_token_routes_and_reads_nothing(
    make_api: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    """The response is the same for paths that exist and others."""
    api = make_api(token="s3cret")

    async def routed(*asgi: Any) -> None:
        raise AssertionError("the request was routed")

    async def received() -> Any:
        raise AssertionError("the body was read")

    monkeypatch.setattr(api.app, "router", routed)
    refused = await api(method, path, receive=received)

    assert (refused.status, refused.code) == (401, "unauthorized")
    assert refused.headers["cache-control"] == "no-store"


@pytest.mark.trio
async def test_paths_and_methods_that_are_not_there(api: Any) -> None:
    """404, and 405 with what is allowed, in the form of all refusals."""
    refused = await api("GET", "/api/nothing")
    assert (refused.status, refused.code) == (404, "not_found")
    refused = await api("PATCH", "/api/rules/x")
    assert (refused.status, refused.code) == (405, "method_not_allowed")
    assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD", "POST", "PUT", "DELETE"}
    assert (await api("POST", "/metrics")).status == 405
    assert (await api("HEAD", "/api/rules")).status == 200


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("hits=0", "hits: input should be greater than or equal to 1, got '0'"),
        ("hits=many", "hits: input should be a valid integer"),
        ("timeout=soon", "timeout: expected a duration"),
        ("timeout=2h", "timeout: input should be less than or equal to 3600"),
        ("count=seen", "count: input should be 'matched', 'fired' or 'applied'"),
        ("hit=1", 'hit: unknown parameter "hit", did you mean "hits"?'),
    ],
)
@pytest.mark.trio
async def test_mistakes_in_a_query(api: Any, query: str, message: str) -> None:
    """422 with the name of the parameter."""
    refused = await api("POST", f"/api/rules/base/wait?{query}")

    assert (refused.status, refused.code) == (422, "invalid_query")
    assert message in refused.json["error"]["message"]


@pytest.mark.trio
async def test_a_mistake_of_our_own_is_an_answer_and_a_log_line(
    api: Any, logged: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request fails, nothing else."""
    monkeypatch.delattr(api.proxy.keeper, "loads")
    failed = await api("GET", "/api/rules")

    assert (failed.status, failed.code) == (500, "internal")
    assert [line["path"] for line in logged if line["event"] == "request failed"] == ["/api/rules"]
    assert (await api("GET", "/api/version")).status == 200
