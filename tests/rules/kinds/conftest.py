"""Exchanges made by hand: what an effect is given, without a session."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.framing import framed
from kproxy.protocol.records import Cut, Record, check_crc, decode, encode_batch, encode_message_set, entries
from kproxy.protocol.table import schema
from kproxy.rules.document.read import parse_rules
from kproxy.rules.entity import entities
from kproxy.rules.exchange import ConnectionView, Exchange, Facts
from kproxy.rules.kinds.base.rule import Effect, LiveRule
from kproxy.session.rewrite.context import TOPIC_IDS, session_lru
from kproxy.tools.rehearse.dialogue import Dialogue
from tests.support.frames import message

PRODUCE, FETCH = 0, 1


class NoCluster:
    """Nothing is known of it."""

    nodes: tuple[int, ...] = ()

    def topic_of(self, topic_id: UUID) -> str | None:
        return None


class Hand:
    """Makes rules, connections and exchanges."""

    @staticmethod
    def rule(text: str) -> Any:
        """The rule of one line of flow style: `kind: quota, produce: 1kB/s`."""
        (rule,) = parse_rules(f"rules: [{{name: r, {text}}}]").rules
        assert isinstance(rule, LiveRule)
        return rule

    @staticmethod
    def effect(rule: LiveRule, seed: str = "1") -> Effect:
        effect = rule.start()
        effect.seed = seed
        return effect

    @staticmethod
    def connection(number: int = 1, address: str = "10.0.0.1", principal: str | None = None) -> ConnectionView:
        facts = Facts("main", "main", address, certificate=principal, node=3)
        return ConnectionView(facts, number, NoCluster())

    @classmethod
    def exchange(
        cls,
        key: int,
        version: int,
        request: dict[str, Any] | None = None,
        response: dict[str, Any] | None = None,
        connection: ConnectionView | None = None,
        client_id: str | None = "tester",
    ) -> Exchange:
        """With bodies of these values, all others at their defaults; sizes are those of real frames."""
        api = schema.load(key)
        asked = message(key, version, "request", request or {}, 9, client_id)
        answered = message(key, version, "response", response or {}, 9)
        exchange = Exchange(connection or cls.connection(), api, version, 9, client_id, len(asked), 0.0)
        exchange.response_size = len(answered)
        exchange.read_request = lambda: decode_request(asked)
        exchange.read_response = lambda: decode_response(answered, key, version)
        exchange.find = lambda: entities(exchange.request)
        return exchange


@pytest.fixture(scope="session")
def hand() -> type[Hand]:
    return Hand


@pytest.fixture(scope="session")
def mistakes_of() -> Callable[[str], list[str]]:
    """The mistakes in the rule of one line of flow style, without their places."""
    from kproxy.base.errors import DocumentError

    def find(text: str) -> list[str]:
        try:
            parse_rules(f"rules: [{{name: r, {text}}}]", "f")
        except DocumentError as error:
            return [line.split(": ", 1)[1] for line in error.mistakes]
        return []

    return find


class RuleDialogue:
    """One exchange after another under rules given as YAML: what the broker is asked, and what the client is told."""

    def __init__(self, rule: str, *following: str, **settings: Any) -> None:
        text = "rules:\n- name: r\n" + textwrap.indent(textwrap.dedent(rule).strip("\n"), "  ")
        text += "".join(f"\n- {{name: r{number}, {one}}}" for number, one in enumerate(following))
        self.talk = Dialogue(text, **settings)
        self.rule = self.talk.rules.live[0] if self.talk.rules.live else None
        self.seen = b""
        self.answered = 0

    def knows(self, name: str, topic_id: UUID) -> None:
        """The cluster's answers have shown this topic."""
        session_lru(self.talk.session.context.cluster_memory, TOPIC_IDS)[topic_id.bytes] = name.encode()

    def ask(self, key: int, version: int, client_id: str = "tester", /, **asked: Any) -> dict[str, Any] | None:
        """The body that the broker is asked with, None when it is not asked."""
        before = len(self.talk.to_broker)
        body = {"acks": 1, **asked} if key == 0 else asked
        self.talk.client(framed(message(key, version, "request", body, 1, client_id)))
        frames = self.talk.to_broker[before:]
        return decode_request(frames[4:]).body if frames else None

    def answer(self, key: int, version: int, /, **answered: Any) -> dict[str, Any]:
        """The broker answers: the body that the client is told."""
        self.talk.broker(self.frame(key, version, **answered))
        return self.received(key, version)

    @staticmethod
    def frame(key: int, version: int, /, **answered: Any) -> bytes:
        """The broker's answer."""
        return framed(message(key, version, "response", answered, 1))

    def received(self, key: int, version: int) -> dict[str, Any]:
        """The body that the client has been told since the last time."""
        frame = self.talk.to_client[self.answered :]
        self.answered += len(frame)
        return decode_response(frame[4:], key, version).body


@pytest.fixture
def dialogue() -> type[RuleDialogue]:
    """`dialogue("kind: no_leader")` is a dialogue under that rule."""
    return RuleDialogue


FORMS = [(2, codec) for codec in range(5)] + [(magic, codec) for magic in (1, 0) for codec in range(4)]


class Carried(RuleDialogue):
    """The same for records, of partition 0 of the topic orders."""

    def fetched(self, records: bytes | None, version: int = 12, **said: Any) -> dict[str, Any]:
        """The partition that the client is told of when the broker has these records."""
        topic = {"topic_id": UUID(int=7)} if version >= 13 else {"topic": "orders"}
        self.knows("orders", UUID(int=7))
        limits = {"max_wait_ms": 500, **({"session_epoch": -1} if version >= 7 else {})}
        self.ask(FETCH, version, **limits, topics=[{**topic, "partitions": [{"partition": 0}]}])
        part = {"partition_index": 0, "high_watermark": 100, "records": records, **said}
        body = self.answer(FETCH, version, responses=[{**topic, "partitions": [part]}])
        found: dict[str, Any] = body["responses"][0]["partitions"][0]
        return found

    def produced(self, records: bytes, version: int = 9, acks: int = 1) -> bytes | None:
        """What the broker gets when the client writes these, None when it gets nothing."""
        data = [{"name": "orders", "partition_data": [{"index": 0, "records": records}]}]
        body = self.ask(PRODUCE, version, acks=acks, topic_data=data)
        return None if body is None else bytes(body["topic_data"][0]["partition_data"][0]["records"])

    @staticmethod
    def batch(*values: str | None, magic: int = 2, codec: int = 0, first: int = 5, **more: Any) -> bytes:
        """A batch (or message set) of records with these values and the keys k0, k1, …"""
        made = [
            Record(first + n, 1000 + n if magic else -1, f"k{n}".encode(), None if one is None else one.encode())
            for n, one in enumerate(values)
        ]
        return encode_batch(made, codec=codec, **more) if magic == 2 else encode_message_set(made, magic, codec=codec)

    @staticmethod
    def read(data: Any) -> list[tuple[int, str | None]]:
        """(offset, value) of all records; every checksum has to be right."""
        found = []
        for entry in entries(data):
            assert not isinstance(entry, Cut)
            check_crc(entry)
            found += [(one.offset, None if one.value is None else one.value.decode("latin-1")) for one in decode(entry)]
        return found


@pytest.fixture
def carried() -> type[Carried]:
    """`carried("kind: drop_records")` is a dialogue about records under that rule."""
    return Carried


@pytest.fixture(params=FORMS, ids=lambda form: f"magic{form[0]}-codec{form[1]}")
def form(request: pytest.FixtureRequest) -> dict[str, int]:
    """Each format of records with each of its codecs."""
    return {"magic": request.param[0], "codec": request.param[1]}
