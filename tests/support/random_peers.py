"""A random client and a random broker: the frames that they send, and how badly they may behave.

All chances come from one `random.Random`, so that a seed says all.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from kproxy.base.errors import DecodeError
from kproxy.protocol import Message, decode_request, encode
from kproxy.protocol.codec.message import awaits_response
from kproxy.protocol.framing import framed
from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import PRODUCE
from tests.support.random_requests import answered, random_request

CLIENT_IDS = ("tester", "etl-1", "größe", None)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of a random client: its frame with the size in front, and whether a response is due."""

    frame: bytes
    key: int
    version: int
    correlation: int
    due: bool


def random_traffic(random: Random, apis: list[str], count: int, mangle: float = 0.0) -> list[Asked]:
    """Return requests with correlation ids from 1 on; `mangle` is the chance of each to be spoilt."""
    made = [asked(random, schema.load(schema.names()[random.choice(apis)]), number + 1) for number in range(count)]
    if not mangle:
        return made
    return [replace(one, frame=mangled(one.frame, random, 12)) if random.random() < mangle else one for one in made]


def mangled(frame: bytes, random: Random, after: int = 4) -> bytes:
    """Return the frame with one to three random bytes behind the first `after` ones replaced."""
    found = bytearray(frame)
    for _ in range(random.choice((1, 1, 3)) if len(frame) > after else 0):
        place = random.randrange(after, len(frame))
        found[place] = random.choice((0, 255, 127, 128, random.randrange(256), found[place] ^ 1 << random.randrange(8)))
    return bytes(found)


def asked(random: Random, api: schema.Api, correlation: int) -> Asked:
    """Return a random request of this API with this correlation id."""
    versions = list(api.versions)
    version = random.choice((versions[0], versions[-1], versions[-1], random.choice(versions)))
    message = random_request(api, version, random, full=random.random() < 0.7)
    message.header["correlation_id"] = correlation
    if api.header_version("request", version):
        message.header["client_id"] = random.choice(CLIENT_IDS)
    plausible(message.body, random)
    if api.key == PRODUCE:
        message.body["acks"] = random.choice((-1, -1, 1, 0))
    frame = encode(message) + random.choice((b"",) * 9 + (b"behind",))
    return Asked(framed(frame), api.key, version, correlation, awaits_response(message))


def plausible(body: Any, random: Random) -> None:
    """Put mostly whole batches under `records`, and fetch sessions that begin or are not wanted, in place."""
    for name, value in body.items() if isinstance(body, dict) else ():
        if name == "records" and random.random() < 0.8:
            made = [
                Record(number, number, b"k", b"v" * random.randrange(20)) for number in range(random.choice((1, 3)))
            ]
            body[name] = encode_batch(made, codec=random.choice((0, 0, 3)))
        elif name in ("session_epoch", "share_session_epoch") and random.random() < 0.8:
            body[name] = random.choice((0, -1))
        elif isinstance(value, list):
            for one in value:
                plausible(one, random)


@dataclass(slots=True)
class Manners:
    """Chances, from 0 to 1, that a broker spoils one response in some way, or sends none."""

    error: float = 0.1
    trailing: float = 0.05
    junk: float = 0.0
    swap: float = 0.0
    silent: float = 0.0
    mangle: float = 0.0
    ends: float = 0.0


class Broker:
    """A random broker that takes bytes and answers whole requests in order when it is asked to."""

    def __init__(self, random: Random, manners: Manners) -> None:
        self.random, self.manners = random, manners
        self.data = bytearray()
        self.answers: deque[bytes] = deque()
        self.said: list[bytes] = []
        self.lost = False  # a request could not be read, and no later one is

    def take(self, data: bytes) -> None:
        """Take bytes that reached the broker, and the requests that they complete."""
        self.data += data
        while len(self.data) >= 4 and not self.lost:
            size = int.from_bytes(self.data[:4], "big", signed=True)
            if not 8 <= size < 1 << 24:
                self.lost = True
            elif len(self.data) < size + 4:
                return
            else:
                frame = bytes(self.data[4 : 4 + size])
                del self.data[: 4 + size]
                self.request(frame)

    def request(self, frame: bytes) -> None:
        """Put the response to this request in the queue, spoilt as the broker's manners say."""
        random, manners = self.random, self.manners
        try:
            message = decode_request(frame, trailing=True)
        except DecodeError:
            self.lost = True
            return
        if not awaits_response(message):
            return
        if random.random() < manners.silent:
            return
        said = encode(self.answer(message))
        if random.random() < manners.junk:
            said = said[:4] + bytes(random.randrange(256) for _ in range(random.randrange(40)))
        if random.random() < manners.trailing:
            said += b"xyz"
        if random.random() < manners.mangle:
            said = mangled(said, random)
        self.said.append(said)
        self.answers.append(framed(said))
        if random.random() < manners.swap and len(self.answers) > 1:
            self.answers[-1], self.answers[-2] = self.answers[-2], self.answers[-1]

    def answer(self, message: Message) -> Message:
        said = answered(message, self.random)
        plausible(said.body, self.random)
        if self.random.random() < self.manners.error:
            spoil(said.body, self.random)
        if message.api.key in (17, 18, 36):  # the session reads these
            said.body["error_code"] = 0
        return said


def spoil(value: Any, random: Random) -> None:
    """Put errors at random places of a response."""
    if not isinstance(value, dict):
        return
    for name, inner in value.items():
        if name == "error_code" and random.random() < 0.7:
            value[name] = random.choice((3, 6, 27, -1, 999))
        elif isinstance(inner, list):
            for one in inner:
                spoil(one, random)
