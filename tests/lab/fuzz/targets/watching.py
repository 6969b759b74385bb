"""A watcher beside a connection on which anything is said.

- nothing is raised, at any depth, with or without a summary
- all bytes are counted, and each request is handed out once, answered or not
- how the bytes are cut changes nothing of what is handed out
"""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.protocol.framing import framed
from kproxy.protocol.table import schema
from kproxy.record.exchange import Depth
from kproxy.tools.rehearse.dialogue import request, response
from tests.lab.fuzz.feed import FedRandom, Feed
from tests.record.observer.watching import (
    BROKER,
    CLIENT,
    Manners,
    Talk,
    Watching,
    play,
    random_talk,
    told,
    whole_summary,
)

APIS = sorted(schema.names())
MOST = 50
CHUNKS = (0, 1, 3, 7, 40, 200)


def check(data: bytes) -> None:
    """One input."""
    feed = Feed(data)
    depth, most, chunk = feed.pick(list(Depth)), feed.pick((MOST, 100_000)), feed.pick(CHUNKS)
    talk = conversation(feed)
    one, other = (watched(talk, depth, most, size) for size in (0, chunk))
    assert one.counts() == other.counts()
    assert sum(len(said) for _, said in talk) == sum(one.counts()[4:])
    if most > MOST:  # else what is kept of a long frame depends on whether it came as a whole
        seen, expected = list(map(told, one.seen)), list(map(told, other.seen))
        assert seen == expected or repr(seen) == repr(expected)  # a NaN is not equal to itself
    requests, responses, unanswered = one.counts()[:3]
    assert requests >= responses + unanswered


def watched(talk: Talk, depth: Depth, most: int, chunk: int) -> Watching:
    watching = Watching(depth, most=most, summary=whole_summary())
    play(talk, watching, chunk=chunk).end()
    assert watching.observer.summary is not None
    watching.observer.summary.drain(200.0, everything=True)
    return watching


def conversation(feed: Feed) -> Talk:
    """Who says what."""
    talk: Talk = []
    while feed and len(talk) < 60:
        match feed.below(4):
            case 0:
                talk.append((feed.pick((CLIENT, BROKER)), feed.piece()))
            case 1:
                talk.append((feed.pick((CLIENT, BROKER)), framed(feed.piece())))
            case _:
                apis = [feed.pick(APIS) for _ in range(3)]
                random = FedRandom(feed.piece())
                talk += random_talk(random, apis, 3, Manners(junk=0.1, mangle=0.1, silent=0.05), mangle=0.1)
    return [(side, said) for side, said in talk if said]


def seeds() -> Iterator[bytes]:
    """Inputs to begin with."""
    asked, said = request(3, 9, 2, topics=[{"name": "a"}])[4:], response(3, 9, 2)[4:]
    for depth in range(len(Depth)):
        begin = bytes((depth, depth % 2, depth % len(CHUNKS)))
        yield begin + bytes((1, 0, len(asked))) + asked + bytes((1, 1, len(said))) + said
        for api in range(0, len(APIS), 11):
            yield begin + bytes((2, api, api + 1, (api + 2) % len(APIS), 6, 1, 2, 3, 4, 5, api))


WORDS = [b"\0\x12\0\x03\0\0\0\x01", b"\0\x11\0\0", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"]
