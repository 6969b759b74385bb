"""Frames that rules hold, over the API: looked at, changed, let go, by several people, and without any credential."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Any

import pytest

from kproxy.admin.held_news import HeldFollower, HeldNewsShown
from kproxy.protocol.framing import framed
from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Struct
from kproxy.record.observer.credentials import BODIES, REQUEST, VALUES, secret_paths
from kproxy.rules.exchange import Facts
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.frames import message, produce, produced
from tests.support.held_api import Held
from tests.support.holding import HeldOwner
from tests.support.random_values import random_struct

pytestmark = pytest.mark.trio
HEARTBEAT, METADATA, ALTER_CONFIGS = 12, 3, 33
BEAT = request(HEARTBEAT, 4, 1, group_id="g")
SECRET = "hunter2secret"


async def test_what_is_held_is_listed_and_shown(make_held: Callable[..., Held]) -> None:
    """With its exchange, its time, what waits behind it, its bytes and what stands in them."""
    held = make_held("hold_for: 30s, max_frames: 7, on_timeout: {error: REQUEST_TIMED_OUT}")
    assert (await held.api("GET", "/api/held")).json == {"held": [], "max_frames": 7, "passed_over": 0}
    held.talk.client(BEAT + BEAT)
    (one,) = await held.list()
    assert 29 < one.pop("ends_in") <= 30
    assert 599 < one.pop("longest") <= 600
    assert one.pop("since").startswith("20")
    assert one == {
        "id": "1-1", "rule": "hold", "rules": ["hold"], "at": "request",
        "on_timeout": "REQUEST_TIMED_OUT", "revision": 1, "behind": 1, "bytes": len(BEAT),
        "client_ended": False, "editable": True, "why_not": None, "claimed_by": None, "gone": None,
        "exchange": {"connection": 1, "listener": "main", "client_address": "127.0.0.1", "client": "tester",
                     "principal": None, "api": "Heartbeat", "version": 4, "correlation_id": 1},
    }  # fmt: skip
    shown = (await held.api("GET", "/api/held/1-1")).json
    frame = shown["frame"]
    assert (b64decode(frame["data"]), frame["form"], frame["bytes"], frame["decode_error"]) == (
        BEAT[4:],
        "whole",
        len(BEAT),
        "",
    )
    start, end = next((one[0], one[1]) for one in frame["steps"] if one[3] == "group_id")
    assert BEAT[4:][start:end] == b"\x02g"
    assert shown["broker"] is None


async def test_a_preview_shows_and_does_nothing(make_held: Callable[..., Held]) -> None:
    """As often as one likes; then the same edit goes on, and it is known for a minute by whom."""
    held = make_held()
    held.talk.client(BEAT)
    change = [{"path": "group_id", "value": "bills"}]
    for _ in range(2):
        shown = await held("preview", set=change)
        assert b64decode(shown.json["frame"]["data"]) == request(HEARTBEAT, 4, 1, group_id="bills")[4:]
    assert held.talk.to_broker == b""

    gone = await held("resume", set=change, who="mara")
    assert (gone.status, gone.json["gone"]) == (200, "edited")
    assert held.talk.to_broker == request(HEARTBEAT, 4, 1, group_id="bills")
    late = await held("resume")
    assert (late.status, late.code) == (404, "no_such_held")
    assert '"1-1" was edited by mara 0 s ago' in late.json["error"]["message"]
    assert held.told == [("added", "1-1", None, ""), ("gone", "1-1", "edited", "mara")]


async def test_who_has_looked_at_another_revision_is_told(make_held: Callable[..., Held]) -> None:
    """And who is at it, which keeps nobody from anything."""
    held = make_held("hold_for: 5s")
    held.talk.client(BEAT)
    assert (await held("claim", who="mara")).json["claimed_by"] == "mara"
    longer = (await held("extend", by="60s")).json
    assert (longer["revision"], 60 < longer["ends_in"] <= 90) == (1, True)
    refused = await held("resume", revision=2)
    assert (refused.status, refused.code) == (409, "held_changed")
    assert "revision 1 now, not 2, mara is at it" in refused.json["error"]["message"]
    assert (await held("resume")).json["gone"] == "resumed"
    assert [what for what, *_ in held.told] == ["added", "changed", "changed", "gone"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "where"),
    [
        ("resume", {"set": [{"path": "group_id", "value": 5}]}, 422, "invalid_edit", "group_id"),
        ("preview", {"set": [{"path": "nope", "value": 5}]}, 422, "invalid_edit", "nope"),
        ("resume", {"bytes": "!"}, 422, "invalid_edit", "bytes"),
        ("resume", {"bytes": b64encode(b"\0\1" + BEAT[6:]).decode()}, 422, "invalid_edit", "byte 0"),
        ("resume", {"bytes": b64encode(BEAT[4:8] + b"\0\0\0\2" + BEAT[12:]).decode()}, 422, "invalid_edit", "byte 4"),
        ("resume", {"bytes": b64encode(b"short").decode()}, 422, "invalid_edit", "byte 5"),
        ("resume", {"set": [], "bytes": ""}, 422, "invalid_edit", "bytes"),
        ("resume", {"nope": 1}, 422, "invalid_body", "nope"),
        ("resume", {"revision": "x"}, 422, "invalid_body", "revision"),
        ("extend", {"by": "11m"}, 422, "invalid_body", "by"),
        ("drop", {"connection": "fly"}, 422, "invalid_body", "connection"),
        ("answer", {}, 422, "invalid_edit", ""),
        ("answer", {"error": "NOPE"}, 422, "invalid_edit", "error"),
        ("answer", {"error": 0}, 422, "invalid_edit", "error"),
        ("answer", {"body": {"error_code": "x"}}, 422, "invalid_edit", "error_code"),
        ("answer", {"bytes": b64encode(b"\0\0\0\7").decode()}, 422, "invalid_edit", "byte 0"),
    ],
)
async def test_what_does_not_fit_is_refused_with_its_place(
    make_held: Callable[..., Held], path: str, body: dict[str, Any], status: int, code: str, where: str
) -> None:
    """And nothing happens."""
    held = make_held()
    held.talk.client(BEAT)
    refused = await held(path, **body)
    assert (refused.status, refused.code) == (status, code)
    assert [one["where"] for one in refused.json["error"]["mistakes"]] == [where]
    assert held.talk.to_broker == held.talk.to_client == b""
    assert (await held("resume")).status == 200


async def test_a_request_can_be_answered_in_the_brokers_place(make_held: Callable[..., Held]) -> None:
    """By an error, by fields, or by bytes."""
    held = make_held()
    for number, given in enumerate(
        ({"error": "REBALANCE_IN_PROGRESS"}, {"body": {"error_code": 27}},
         {"bytes": b64encode(response(HEARTBEAT, 4, 1, error_code=27)[4:]).decode()}), start=1,
    ):  # fmt: skip
        held.talk.client(BEAT)
        answered = await held.api("POST", f"/api/held/1-{number}/answer", {"revision": 1, **given})
        assert (answered.status, answered.json["gone"]) == (200, "answered")
    assert [one.body["error_code"] for one in held.talk.responses(*[(HEARTBEAT, 4)] * 3)] == [27] * 3
    assert held.talk.to_broker == b""


async def test_no_answer_is_given_where_none_is_due(make_held: Callable[..., Held]) -> None:
    """To a write with acks 0, and to a response."""
    held = make_held()
    held.talk.client(produce(1, "orders", acks=0))
    refused = await held("answer", error="NOT_LEADER_OR_FOLLOWER")
    assert (refused.status, refused.code) == (409, "no_answer_due")
    bytes_of_acks_1 = b64encode(produce(1, "orders", acks=1)[4:]).decode()
    refused = await held("resume", bytes=bytes_of_acks_1)
    assert [one["where"] for one in refused.json["error"]["mistakes"]] == ["acks"]
    await held("resume")
    held.talk.client(BEAT)
    await held.api("POST", "/api/held/1-2/resume", {"revision": 1})
    held.talk.broker(response(HEARTBEAT, 4, 1))
    refused = await held.api("POST", "/api/held/1-3/answer", {"revision": 1, "error": 27})
    assert (refused.status, refused.code) == (409, "no_answer_due")


async def test_frames_are_dropped_and_connections_closed(make_held: Callable[..., Held]) -> None:
    """As rules of these kinds do."""
    held = make_held()
    held.talk.client(BEAT + BEAT)
    assert (await held("drop", connection="continue")).json["gone"] == "dropped"
    closed = await held.api("POST", "/api/held/1-2/close", {"revision": 1, "close_with": "rst"})
    assert closed.json["gone"] == "closed"
    assert held.talk.closed is not None
    assert (held.talk.closed.reset, held.talk.to_broker) == (True, b"")


async def test_all_that_is_held_is_let_go_at_once(make_held: Callable[..., Held]) -> None:
    """Of one rule, or of all; a rule that there is not is refused."""
    held = make_held()
    talks = [held.connect(number) for number in range(2, 6)]
    for talk in talks:
        talk.client(BEAT)
    assert (await held.api("POST", "/api/held/resume", {"rule": "nope"})).code == "no_such_rule"
    assert (await held.api("POST", "/api/held/resume", {"rule": "hold", "who": "mara"})).json == {"resumed": 4}
    assert [talk.to_broker for talk in talks] == [BEAT] * 4
    assert {told[2:] for told in held.told if told[0] == "gone"} == {("resumed", "mara")}
    assert (await held.api("POST", "/api/held/resume", {})).json == {"resumed": 0}


async def test_a_rule_that_is_turned_off_lets_go(make_held: Callable[..., Held]) -> None:
    """Likewise when faults are disabled, and by `resume`."""
    for path in ("rules/hold/disable", "faults/disable", "rules/hold/resume"):
        held = make_held()
        held.talk.client(BEAT)
        assert (await held.api("POST", f"/api/{path}")).status == 200
        assert held.talk.to_broker == BEAT
        how = "resumed" if "resume" in path else "rule_gone"
        assert held.told[-1] == ("gone", "1-1", how, "")


@pytest.mark.parametrize("number", ["", "1", "x-1", "1-x", "1-1-1", "9" * 50 + "-1", "1-99", "%00-1"])
async def test_ids_that_are_none_are_not_found(make_held: Callable[..., Held], number: str) -> None:
    """Whatever they look like."""
    held = make_held()
    assert (await held.api("GET", f"/api/held/{number}-"[:200])).status == 404
    assert (await held.api("POST", f"/api/held/{number}/resume", {"revision": 1})).status in (404, 405)


async def test_a_response_is_shown_beside_what_the_broker_sent(make_held: Callable[..., Held]) -> None:
    """If that is another frame."""
    text = "at: response}\n  - {name: r, kind: rename_topic, topics: {bills: prod.bills}"
    held = make_held(text)
    bound = held.api.proxy.rules.bind(Facts("main", "main", "127.0.0.1"))
    plan = Plan(ConnectionSettings.of(bound, advertise=True), bound.live)
    held.talk = Dialogue(shared=held.api.proxy.shared["main"], plan=plan, number=1,
                         now=monotonic())  # fmt: skip
    held.talk.session.owner = HeldOwner(held.talk)
    held.talk.client(produce(1, "bills")).broker(produced(1, "prod.bills"))
    shown = (await held.api("GET", "/api/held/1-1")).json
    assert b64decode(shown["frame"]["data"]) == produced(1, "bills")[4:]
    assert b64decode(shown["broker"]["data"]) == produced(1, "prod.bills")[4:]


# ---- filters, as they are judged in a process


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        ("~val timeout", True), ("~val nothing", False), ("~k produce and ~t ^orders", True), ("~cl ^nobody", False),
        ("~key k and not ~h x", True), ("acks all", True), ("~acks 0", False), ("listener == main", True),
    ],
)  # fmt: skip
async def test_a_filter_says_which_requests_are_held(make_held: Callable[..., Held], wanted: str, holds: bool) -> None:
    """In the words of the filter language, records included."""
    if wanted == "acks all":
        wanted = "acks == all"
    held = make_held(f"filter: '{wanted}'")
    records = encode_batch([Record(0, 1700000000000, b"k", b"a timeout")])
    frame = produce(1, ("orders", 0, records))
    held.talk.client(frame)
    assert bool(await held.list()) == holds
    assert held.talk.to_broker == (b"" if holds else frame)


async def test_a_filter_says_which_responses_are_held(make_held: Callable[..., Held]) -> None:
    """By what the broker said, and what it was asked."""
    held = make_held("at: response, filter: '~e NOT_LEADER and ~t ^orders'")
    held.talk.client(produce(1, "orders") + produce(2, "clicks") + produce(3, "orders"))
    held.talk.broker(produced(1, "orders") + produced(2, "clicks", error=6) + produced(3, "orders", error=6))
    (one,) = await held.list()
    assert one["exchange"]["correlation_id"] == 3


# ---- credentials


def marked(struct: Struct, random: Random) -> dict[str, Any]:
    """Return a body in which every text and all bytes hold the secret; arrays have one element."""
    body = {}
    for slot in struct.all_slots:
        if slot.struct is not None:
            value: Any = marked(slot.struct, random)
        elif slot.type in ("string", "bytes", "records"):
            value = SECRET if slot.type == "string" else SECRET.encode()
        else:
            value = random_struct(struct, random).get(slot.name) if not slot.array else slot.default()
            body[slot.name] = slot.default() if value is None or slot.array else value
            continue
        body[slot.name] = [value] if slot.array else value
    return body


def has_secrets(key: int, version: int, direction: str) -> bool:
    paths = secret_paths(key, direction)
    return not paths or any(slot.path in paths for slot in layout.body(key, version, direction).everywhere())


def secret_messages() -> list[tuple[int, int, str]]:
    """APIs with credentials, each in its oldest and newest version; those of SASL tokens need a login to pass."""
    found = []
    for key, direction in (*BODIES, *VALUES):
        versions = [one for one in schema.load(key).versions if has_secrets(key, one, direction)]
        found += [(key, version, direction) for version in dict.fromkeys((versions[0], versions[-1]))]
    return found


@pytest.mark.parametrize(("key", "version", "direction"), secret_messages())
async def test_no_credential_is_ever_told(
    make_held: Callable[..., Held], key: int, version: int, direction: str
) -> None:
    """Not in the frame, not in a preview, not in a refusal."""
    random = Random(key)
    body = marked(layout.body(key, version, direction), random)
    plain = framed(message(key, version, REQUEST, {}, 7))
    held = make_held(f"at: {direction}")
    if direction == REQUEST:
        held.talk.client(framed(message(key, version, direction, body, 7)))
    else:
        held.talk.client(plain).broker(framed(message(key, version, direction, body, 7)))
    (one,) = await held.list()
    shown = await held.api("GET", "/api/held/1-1")
    paths = [step[3] for step in shown.json["frame"]["steps"]][:20] or ["auth_bytes"]
    answers = [shown, await held("preview", set=[]), await held("preview", set=[{"path": paths[0], "value": {}}]),
               await held("preview", bytes=b64encode(b"\0" * 20).decode())]  # fmt: skip
    assert answers[-1].code == "not_editable"
    for answer in answers:
        clean_of_secrets(answer, key, direction)
    assert one["editable"]


def clean_of_secrets(answer: Any, key: int, direction: str) -> None:
    """Where only values are secret, names may hold the same text, so these are looked at apart."""
    frame = answer.json.get("frame")
    if frame is None:
        assert SECRET not in answer.body.decode()
        return
    assert frame["withheld"]
    if (key, direction) in BODIES:
        everything = json.dumps(answer.json).encode() + b64decode(frame["data"])
        assert SECRET.encode() not in everything
        assert SECRET.encode().hex().encode() not in everything
        return
    paths = secret_paths(key, direction)
    values = [step for step in frame["steps"] if re.sub(r"\d+", "", step[3]) in paths and step[4] == "value"]
    assert values
    data = b64decode(frame["data"])
    for start, end, _, _, _, _, value in values:
        assert SECRET not in str(value)
        assert SECRET.encode() not in data[start:end]


async def test_fields_of_a_frame_with_hidden_values_can_be_set(make_held: Callable[..., Held]) -> None:
    """What is hidden stays as it was: only changes travel."""
    held = make_held()
    configs = [{"name": "a", "value": SECRET}, {"name": "b", "value": "x"}]
    body = {"resources": [{"resource_type": 2, "resource_name": "t", "configs": configs}], "validate_only": True}
    held.talk.client(framed(message(ALTER_CONFIGS, 2, REQUEST, body, 7)))
    shown = await held("preview", set=[{"path": "resources[0].configs[1].value", "value": "new"}])
    assert shown.json["frame"]["withheld"] == "config values"
    assert "new" not in shown.body.decode()
    await held("resume", set=[{"path": "resources[0].configs[1].value", "value": "new"}])
    (seen,) = held.talk.requests()
    assert [one["value"] for one in seen.body["resources"][0]["configs"]] == [SECRET, "new"]


# ---- claims, and frames that several rules hold


async def test_claim_holds_a_frame_for_half_a_minute_at_least(make_held: Callable[..., Held]) -> None:
    """A name is not needed. Ten minutes after its beginning the frame goes on, whatever is claimed."""
    held = make_held("hold_for: 5s")
    held.talk.client(BEAT)
    claimed = (await held("claim", who="")).json
    assert (claimed["claimed_by"], 29 < claimed["ends_in"] <= 30, 599 < claimed["longest"] <= 600) == (None, True, True)
    (one,) = held.desk.held.values()
    one.since -= 590.0
    claimed = (await held("claim", who="mara")).json
    assert (claimed["claimed_by"], claimed["revision"], 29 < claimed["ends_in"] <= 30) == ("mara", 1, True)
    one.until = one.since + 595.0
    claimed = (await held("claim", who="mara")).json
    assert 9 < claimed["ends_in"] <= claimed["longest"] <= 10


async def test_frame_that_two_rules_hold_is_listed_once(make_held: Callable[..., Held]) -> None:
    """A decision is one for both; when the first rule lets go, the frame goes on under the id of the other hold."""
    held = make_held("hold_for: 5s", other="- {name: other, kind: intercept, hold_for: 60s, on_timeout: close}")
    held.talk.client(BEAT)
    member = held.api.backend.members[0]
    (shown,) = await held.list()
    assert (shown["id"], shown["rules"], shown["on_timeout"], 59 < shown["ends_in"] <= 60) == (
        "1-1", ["hold", "other"], "close", True,
    )  # fmt: skip
    news = await member.held_news(None)
    assert [name for _, name, _ in news.added] == ["1-1"]
    held.desk.held["1-1"].let_go("timed_out")
    news = await member.held_news(news.number)
    assert ([one.id for one in news.gone], [name for _, name, _ in news.added]) == (["1-1"], ["1-2"])
    assert [one["rules"] for one in await held.list()] == [["other"]]
    held.talk.client(BEAT)
    assert (await held.api("POST", "/api/held/1-2/resume", {"revision": 1})).json["gone"] == "resumed"
    assert held.talk.to_broker.startswith(BEAT)


@pytest.mark.parametrize("action", ["resume", "drop", "close"])
async def test_decision_about_a_frame_is_one_for_all_rules(make_held: Callable[..., Held], action: str) -> None:
    held = make_held("hold_for: 5s", other="- {name: other, kind: intercept, hold_for: 60s}")
    held.talk.client(BEAT)
    assert (await held(action)).status == 200
    assert (held.desk.held, await held.list()) == ({}, [])


# ---- news


async def test_who_looks_is_told_what_becomes_of_held_frames(make_held: Callable[..., Held]) -> None:
    """What came and went between two looks is gone only; who missed too much is told all anew."""
    held = make_held("hold_for: 30s, max_frames: 100")
    member = held.api.backend.members[0]
    first = await member.held_news(None)
    assert (first.whole, first.added) == (True, [])
    held.talk.client(BEAT)
    await held("claim", who="mara")
    news = await member.held_news(first.number)
    assert [json.loads(row)["claimed_by"] for _, _, row in news.added] == ["mara"]
    await held("extend", by="1s")
    later = await member.held_news(news.number)
    assert ([json.loads(row)["revision"] for _, _, row in later.changed], later.added) == ([1], [])
    await held("resume")
    held.talk.client(BEAT)
    await held.api("POST", "/api/held/resume", {})
    last = await member.held_news(later.number)
    assert [(one.id, one.how) for one in last.gone] == [("1-1", "resumed"), ("1-2", "resumed")]
    assert (last.added, last.changed) == ([], [])
    assert (await member.held_news(10**6)).whole


async def test_what_went_with_its_process_is_told_to_be_gone(make_held: Callable[..., Held]) -> None:
    """A follower that finds another process in a member's place asks for all, and misses what it had been told."""
    held = make_held("hold_for: 30s")
    held.talk.client(BEAT)
    member = held.api.backend.members[0]
    follower = HeldFollower()
    follower.begins(member)
    told = follower.take(await member.held_news(None))
    assert [name for _, name, _ in told["added"]] == ["1-1"]
    follower.process = object()
    follower.begins(member)
    assert follower.number is None
    assert [one.id for one in follower.take(HeldNewsShown(number=0, whole=True))["gone"]] == ["1-1"]


# ---- what the config says


async def test_what_the_config_hides_is_hidden_here_too(make_held: Callable[..., Held]) -> None:
    """Records, or changes."""
    held = make_held()
    records = encode_batch([Record(0, 1700000000000, b"k", SECRET.encode())])
    held.talk.client(produce(1, ("orders", 0, records)))
    backend = held.api.backend
    member = backend.members[0]
    assert SECRET in (await held.api("GET", "/api/held/1-1")).body.decode() or member.held_frames.records
    member.held_frames.records = False
    shown = await held.api("GET", "/api/held/1-1")
    assert SECRET.encode() not in b64decode(shown.json["frame"]["data"])
    assert shown.json["frame"]["withheld"] == "records, which this view does not show"
    assert shown.json["records"][0]["batches"] == []
    refused = await held("resume", bytes=b64encode(produce(1, "orders")[4:]).decode())
    assert refused.code == "not_editable"

    backend.view = backend.view.model_copy(update={"write": False})
    assert (await held("resume")).code == "read_only"
    assert (await held("preview", set=[])).status == 200
    assert (await held.api("POST", "/api/held/resume", {})).code == "read_only"
    assert held.talk.to_broker == b""


async def test_records_are_shown_to_be_edited(make_held: Callable[..., Held]) -> None:
    """By partition, as of kept exchanges; an edit of one is shown in the preview."""
    held = make_held()
    records = encode_batch([Record(0, 1700000000000, b"k", b"before")])
    held.talk.client(produce(1, ("orders", 0, records)))
    path = "topic_data[0].partition_data[0].records[0].value"
    shown = await held("preview", set=[{"path": path, "value": "after"}])
    ((record,),) = [batch["records"] for batch in shown.json["records"][0]["batches"]]
    assert b64decode(record["value"]) == b"after"
    assert shown.json["records"][0]["batches"][0]["crc"] == "right"
