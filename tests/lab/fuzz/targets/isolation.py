"""A client that tries to get around a rule, and a broker that answers as brokers do and names everybody's things.

- of a tenant nothing leaves but names, ids, patterns and bytes that are its own or that no broker finds anything by,
  in whatever order, pieces and spelling they are sent
- what a rule of access forbids no request that leaves does
- nothing that a client is sent names what is others' or forbidden, has the id of it, or a record

Requests are those of the whole protocol's table, in all versions, good or nearly so. There are several connections
with one client id; the broker keeps sessions, groups and logins, and answers late or in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

from kproxy.base.errors import DecodeError
from kproxy.protocol import Message
from kproxy.protocol.framing import framed
from kproxy.protocol.table import layout, schema
from kproxy.rules.document.read import parse_rules
from kproxy.rules.names.layer import TOPIC
from kproxy.session.plan import STOP, ConnectionSettings, Plan
from kproxy.session.session_state import NOWHERE
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import response
from tests.isolation.access import Access, forbidden
from tests.isolation.hostile import MINE, RULES, TOPICS, embedded_topics, filled, is_own, may_leave, places, request
from tests.isolation.lifelike_cluster import AUTHENTICATE, HANDSHAKE, IDS_FROM, SHARE_FETCH, LifelikeCluster, record_of
from tests.isolation.recording_broker import RecordingBroker
from tests.isolation.teller import Teller
from tests.isolation.telling import FOREIGN, SECRET
from tests.lab.fuzz.feed import FedRandom, Feed
from tests.support.random_peers import mangled
from tests.support.random_values import random_struct

PRODUCE, FETCH, OFFSET_FETCH, JOIN_GROUP, SYNC_GROUP, SHARE_OFFSETS = 0, 1, 9, 11, 14, 90
TOPIC_FIELDS = {"name", "topic_name", "topic_id", "partitions"}
TOLD = "secret.TOLD"
"""What answers name to a client that is denied it: no client says it."""
GROUP_BYTES = ("group_metadata", "group_assignment")


def rules(kind: str, *roles: str, more: str = "") -> str:
    return "rules:\n" + "".join(
        f"- {{name: r{role}, kind: {kind}, match: {{{role}: 'secret*'}}{more}}}\n" for role in roles
    )


ALL = ("topic", "group", "transactional_id")
SETS: tuple[tuple[str, Access | None], ...] = (
    (RULES, None),
    (rules("deny", "topic"), Access("deny", {"topic"})),
    (rules("deny", *ALL), Access("deny", set(ALL))),
    (rules("deny", "group"), Access("deny", {"group"})),
    (rules("read_only", "topic"), Access("read_only", {"topic"})),
    (rules("deny", "topic", more=", not: {principal: audit}"), Access("deny", {"topic"})),
    (rules("read_only", *ALL, more=", offsets: true"), Access("read_only, offsets", set(ALL))),
    (rules("deny", "transactional_id"), Access("deny", {"transactional_id"})),
)
"""Rules, and what a broker's ACLs would forbid in their place; None: those of a tenant."""
LATE = 0x80
"""In the first byte: the rules come when the connections are open already."""
CUTS = (0, 0, 1, 7, 60)
SHORTEST = 8
"""Bytes of a frame that has an API, a version and a correlation id."""
APIS = {
    written: [
        (api.key, version) for api in schema.apis() for version in api.versions
        if plan[api.key << 16 | version].request != STOP and api.header_version("request", version)
    ]
    for written, plan in ((one, Plan(RecordingBroker(one, TOPICS).talk.session.plan.bound)) for one, _ in SETS)
}  # fmt: skip
SESSIONS = {FETCH: ("session_id", "session_epoch"), SHARE_FETCH: (None, "share_session_epoch")}


class Line(RecordingBroker):
    """One connection. Answers may be kept for a while, and come in pieces; behind an old handshake comes a token."""

    def __init__(self, attack: Attack, number: int, written: str) -> None:
        super().__init__(written, attack.cluster.topics, attack.reply, attack.shared)
        self.attack, self.number = attack, number
        self.kept: list[bytes] = []
        self.holds = False
        self.token_due = self.refused = False
        self.looked = self.told = 0

    def say(self, data: bytes, cut: int) -> None:
        """The client sends something; what is due is answered unless answers are kept."""
        self.attack.line = self
        self.send(data, cut)
        while not self.holds and self.kept and not self.closed:
            self.give()
            self.send(b"")

    def take(self, frame: bytes) -> None:
        if self.refused:  # brokers close what cannot log in
            return
        if not self.token_due:
            self.request(frame)
            return
        self.token_due = False
        self.refused = not self.attack.cluster.login(self.number, frame)
        if not self.refused:
            self.kept.append(framed(b""))

    def request(self, frame: bytes) -> None:
        """What is no request to a broker ends the connection."""
        key, version = int.from_bytes(frame[:2], "big", signed=True), int.from_bytes(frame[2:4], "big", signed=True)
        if self.attack.access is None and len(frame) >= SHORTEST:
            known = key in schema.paths() and version in schema.load(key).versions
            assert known, f"{key} {version} is not of the table, and has left"
        try:
            super().take(frame)
        except DecodeError:
            self.refused = True

    def answer(self, asked: Message, **body: Any) -> None:
        if asked.api.key != PRODUCE or asked.body["acks"]:
            self.kept.append(response(asked.api.key, asked.version, asked.header["correlation_id"], **body))
        failed = asked.api.key in (HANDSHAKE, AUTHENTICATE) and bool(body["error_code"])
        self.token_due = (asked.api.key, asked.version) == (HANDSHAKE, 0) and not failed
        self.refused = failed and asked.api.key == AUTHENTICATE
        if not self.holds:
            self.give()

    def give(self) -> None:
        """The answers that are due."""
        while self.kept and not self.closed:
            self.talk.broker(self.kept.pop(0), self.attack.feed.pick(CUTS))

    @property
    def over(self) -> bool:
        """Whether either end has closed it."""
        return bool(self.closed) or self.refused


class Attack:
    """One client, all its connections, and the cluster."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        first = feed.byte()
        self.written, self.access = SETS[(first & ~LATE) % len(SETS)]
        self.mine = "a.mine" if self.access is None else "open.y"
        self.foreign = SECRET if self.access is None else TOLD
        topics = TOPICS | {self.foreign: FOREIGN} | ({} if self.access is None else {self.mine: MINE})
        said = ((name, one) for name, one in topics.items() if one != FOREIGN)
        self.known = tuple((name.removeprefix("a.") if self.access is None else name, one) for name, one in said)
        self.cluster = LifelikeCluster(topics, {"x": "right", "audit": "never said"})
        self.cluster.groups |= {"a.mine": "consumer", "mine": "consumer"}
        self.others = self.cluster.open_session(iter([("b.secret", 0), ("secret", 0)]), by_id=False)
        self.shared = ClusterState()
        self.teller = Teller(self.cluster, self.access, self.mine, self.foreign, self.shared.cluster_memory)
        self.rng: Random = FedRandom(b"")
        late = first & LATE and self.access is not None
        self.lines = [Line(self, number, "" if late else self.written) for number in range(2)]
        self.line = self.lines[0]
        if late:
            self.before()

    def before(self) -> None:
        """What is done until the rules are there."""
        for _ in range(3):
            self.step()
        for line in self.lines:
            line.holds = False
            line.say(b"", 0)
            held = parse_rules(self.written).bind(NOWHERE)
            if not line.closed:
                line.talk.session.use(Plan(ConnectionSettings(advertise=False), held.live), line.talk.now)
                line.talk.obey()
            line.looked, line.told = len(line.reached), len(line.talk.to_client)

    def step(self) -> None:
        """One thing that the client does."""
        feed = self.feed
        how = feed.byte()
        line = self.lines[how >> 7]
        line.holds = bool(how & 0x40)
        self.rng = FedRandom(feed.piece())
        match how & 0x0F:
            case 0:
                data = framed(feed.piece())
            case 1:
                data = self.login(line)
            case 2 | 3:
                data = self.session(line, FETCH if how & 1 else SHARE_FETCH)
            case 4:
                group, kind = feed.pick(("mine", "mine", "new", "")), feed.pick(("connect", "consumer", None))
                data = self.asked(feed.pick((JOIN_GROUP, SYNC_GROUP)), group_id=group, protocol_type=kind)
            case _:
                data = self.asked()
        if not line.over:
            line.say(data * feed.pick((1, 1, 2)), feed.pick(CUTS))

    def asked(self, key: int | None = None, **fields: Any) -> bytes:
        """A request with something hostile in every place; of any API, or of this one in any version."""
        feed, rng = self.feed, self.rng
        apis = [one for one in APIS[self.written] if key in (None, one[0])]
        key, version = apis[feed.below(1 << 16) % len(apis)]
        struct = layout.body(key, version, "request")
        body = filled(struct, random_struct(struct, rng), rng)
        by_id = key != FETCH or version >= IDS_FROM
        for slot in struct.slots:
            if slot.name in fields:
                one = fields[slot.name]
                body[slot.name] = one(by_id) if callable(one) else one
        frame = request(key, version, feed.pick((7, 7, 8)), body)
        match feed.below(16):
            case 0 | 1 | 2:
                return mangled(frame, rng, 12)
            case 3:
                return frame[:4] + feed.take(4).ljust(4, b"\0") + frame[8:]  # as if it were another API or version
        return frame

    def session(self, line: Line, key: int) -> bytes:
        """A request of a session that there is, if any, mostly with the epoch that it has to say."""
        feed, cluster = self.feed, self.cluster
        numbers = [0, *cluster.fetch_sessions]
        number = numbers[-1 - feed.below(4) % len(numbers)]
        found = cluster.fetch_sessions.get(number)
        fields: dict[str, Any] = {"session_id": number}
        if key == SHARE_FETCH:
            owner = next((one for one in cluster.share_sessions if one[0] == line.number), (0, "mine", "m"))
            found = cluster.share_sessions.get(owner)
            fields |= {
                "group_id": feed.pick(((owner[1] or "").removeprefix("a."), "mine", "secret")),
                "member_id": owner[2],
            }
        right = found.epoch if found else 0
        fields[str(SESSIONS[key][1])] = feed.pick((right, right, 0, -1, right + 1))
        number_field = "partition" if key == FETCH else "partition_index"
        chosen, left = ([feed.pick(self.known) for _ in range(feed.below(3))] for _ in range(2))
        return self.asked(
            key, **fields,
            topics=lambda by_id: [named(one, by_id, [{number_field: 0}]) for one in chosen],
            forgotten_topics_data=lambda by_id: [named(one, by_id, [0]) for one in left],
        )  # fmt: skip

    def login(self, line: Line) -> bytes:
        """Handshake and token, both at once or not."""
        feed = self.feed
        token = feed.pick((b"\0x\0right", b"\0audit\0right", b"audit\0x\0right", b"\0audit\0", b"x"))
        old, what = not feed.below(4), feed.below(4)
        handshake = request(HANDSHAKE, 0 if old else 1, 5, {"mechanism": feed.pick(("PLAIN", "PLAIN", "OTHER"))})
        said = framed(token) if old else request(AUTHENTICATE, feed.pick((2, 1, 0)), 6, {"auth_bytes": token})
        behind = self.asked() if what == 3 else b""
        return (handshake, said, handshake + said, handshake + said + behind)[what]

    # ---- the broker

    def reply(self, asked: Message) -> dict[str, Any]:
        """What is kept of the client, and else all that there is, in every place of an answer that has one."""
        kept = self.cluster.answer(self.line.number, asked)
        return self.teller.answer(asked, self.rng) if kept is None else kept

    # ---- what must hold

    def look(self) -> None:
        """At all that has left and come since the last time."""
        for line in self.lines:
            for asked in line.reached[line.looked :]:
                for slot, value, around in places(layout.body(asked.api.key, asked.version, "request"), asked.body):
                    fine = self.fine(asked, slot, value, around)
                    assert fine, f"{asked.api.name} {asked.version}: {slot.path} {value!r}"
            line.looked = len(line.reached)
            told = line.talk.to_client[line.told :]
            for what in self.secrets():
                assert what not in told, f"the client is sent {what!r}"

    def secrets(self) -> Iterator[bytes]:
        """What no answer may have in it."""
        if self.access is None:
            yield from (self.foreign.encode(), FOREIGN.bytes)
            yield from (record_of(name) for name in self.cluster.topics if not name.startswith("a."))
        elif "deny" in self.access.kind:
            yield TOLD.encode()
            if "topic" in self.access.roles:
                yield FOREIGN.bytes
                yield from (record_of(name) for name in self.cluster.topics if name.startswith("secret"))

    def fine(self, asked: Message, slot: Any, value: Any, around: dict[str, Any]) -> bool:
        """Whether a broker that reads this value does nothing that is forbidden."""
        if slot.kind in GROUP_BYTES:
            if self.cluster.kind_of(asked) != "consumer":
                return True  # brokers do not look into it
            named = embedded_topics(slot.kind, value)
            if self.access is None:
                return all(is_own(TOPIC, name) for name in named)
            return not any(self.access.covers("topic", name) for name in named) or self.access.kind != "deny"
        if self.access is None:
            return may_leave(asked, slot, value, around)
        return not forbidden(self.access, self.cluster.topics, asked, slot, value, around)


def named(topic: tuple[str, UUID], by_id: bool, partitions: list[Any]) -> dict[str, Any]:
    """An entry of a Fetch or ShareFetch."""
    return {"topic_id" if by_id else "topic": topic[by_id], "partitions": partitions}


def check(data: bytes) -> None:
    """One input."""
    feed = Feed(data)
    one = Attack(feed)
    for _ in range(12):
        if not feed or all(line.over for line in one.lines):
            return
        one.step()
        one.look()


def seeds() -> Iterator[bytes]:
    """Inputs to begin with: every API under all rules."""
    for number, apis in enumerate(APIS.values()):
        for at in range(0, len(apis), 7):
            more = b"".join(b"\x05\x08seedling" + (at + add).to_bytes(2, "big") + b"\0\1\0\0" for add in range(3))
            yield bytes((number,)) + more


WORDS = [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x08seedling"]
