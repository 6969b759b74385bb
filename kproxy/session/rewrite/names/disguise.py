"""Ids that no topic has, sent in place of topic ids that a client may not use, and their way back.

Strategy. Every id that Kafka makes is a random UUID, of version 4 (RFC 9562); every disguise has 11 for its version.
The other 124 bits of an id of version 4 are permuted under a key that this process has made up, so the way back needs
no memory: an answer in a fetch session may name an id that was asked for many requests before. Ids of other versions
do not fit in as well: theirs are hashes under the same key, remembered for the connection. A client knows neither the
key nor a disguise, since answers are given back; so it can aim at no id, not even at one of a broker whose own ids
have version 11.
"""

from __future__ import annotations

from hashlib import blake2b
from secrets import token_bytes

from kproxy.session.rewrite.context import Context

from .remembered import DISGUISES, MAX_DISGUISES, recall, remember

VERSION_BYTE = 6
RANDOM, OURS = 4, 11  # versions of UUIDs: those of Kafka, and those of disguises
KEY = token_bytes(32)
HALF = (1 << 62) - 1
LOW_BITS = 76  # behind the version
LOW = (1 << LOW_BITS) - 1
ROUNDS = tuple(KEY + bytes((number,)) for number in range(4))
"""Keys of the rounds. Four make a Feistel network a strong pseudorandom permutation (Luby and Rackoff)."""


def version_of(topic_id: bytes) -> int:
    """Return the version of the UUID, 0 to 15."""
    return topic_id[VERSION_BYTE] >> 4


def disguise(topic_id: bytes, context: Context) -> bytes:
    """Return the id to send in place of one that the client may not use: the same one each time."""
    if version_of(topic_id) == RANDOM:
        return joined(permuted(without_version(topic_id)), OURS)
    hidden = joined(int.from_bytes(blake2b(topic_id, key=KEY, digest_size=16).digest(), "big") >> 4, OURS)
    remember(recall(context.memory, DISGUISES), hidden, topic_id, MAX_DISGUISES)
    return hidden


def undisguised(topic_id: bytes, context: Context) -> bytes:
    """Return the id that the client has sent, given the one sent in its place. An id that is no disguise stays."""
    if version_of(topic_id) != OURS:
        return topic_id
    kept: bytes | None = recall(context.memory, DISGUISES).get(topic_id)
    return joined(restored(without_version(topic_id)), RANDOM) if kept is None else kept


def without_version(topic_id: bytes) -> int:
    """Return the 124 bits of an id that are not its version."""
    number = int.from_bytes(topic_id, "big")
    return number >> (LOW_BITS + 4) << LOW_BITS | number & LOW


def joined(bits: int, version: int) -> bytes:
    return (bits >> LOW_BITS << (LOW_BITS + 4) | version << LOW_BITS | bits & LOW).to_bytes(16, "big")


def permuted(bits: int) -> int:
    """Return another number of 124 bits, a different one for each."""
    left, right = bits >> 62, bits & HALF
    for key in ROUNDS:
        left, right = right, left ^ keyed(key, right)
    return left << 62 | right


def restored(bits: int) -> int:
    """Return the number that `permuted` has made this one from."""
    left, right = bits >> 62, bits & HALF
    for key in reversed(ROUNDS):
        left, right = right ^ keyed(key, left), left
    return left << 62 | right


def keyed(key: bytes, half: int) -> int:
    """Return 62 bits that cannot be told without the key."""
    return int.from_bytes(blake2b(key + half.to_bytes(8, "big"), digest_size=8).digest(), "big") & HALF
