"""Brokers' configs in DescribeConfigs answers, without the addresses that stand in some of them (promise 3).

Strategy. A value with addresses becomes null and its entry sensitive, as a broker shows what clients must not see. So
clients know it for a value that is hidden, and one that writes it back all the same is refused by the broker, which
takes null for no value. Found are settings that are made of addresses, by the ends of their names, and any other value
that has the address of a broker which the client knows of. Results about topics and groups are not gone through.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kproxy.protocol.breath import each, rest
from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, Walk, compile_walk, read_string
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import DESCRIBE_CONFIGS
from kproxy.rules.select.match import MAX_LETTERS, Search, search

from .context import Context
from .rewriter import Apply

BROKER = 4
"""org.apache.kafka.common.config.ConfigResource.Type; the name may be empty, for all brokers."""
RESULTS, RESOURCE_TYPE = "results[]", "results[].resource_type"
CONFIG = "results[].configs[]"
NAME, VALUE, SENSITIVE = f"{CONFIG}.name", f"{CONFIG}.value", f"{CONFIG}.is_sensitive"
SYNONYM, SYNONYM_VALUE = f"{CONFIG}.synonyms[].name", f"{CONFIG}.synonyms[].value"
NULL, COMPACT_NULL = b"\xff\xff", b"\0"

LISTS = re.compile(rb"(?:.*\.)?(?:listeners|bootstrap\.servers|quorum\.voters|zookeeper\.connect)", re.DOTALL)
"""Names of settings that are lists of addresses, if they have a colon; of the brokers' own and of their plug-ins."""
PARTS = frozenset((b"host.name", b"port", b"advertised.host.name", b"advertised.port"))
"""Settings of brokers before 3.0 that are half an address."""


@dataclass(frozen=True, slots=True)
class ConfigAddresses:
    """Rewrite of one version's DescribeConfigs response, which hides the addresses in brokers' configs."""

    inner: Walk
    """Walk over one result."""
    compact: bool

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset((RESULTS, RESOURCE_TYPE))

    def bind(self, walk: Walk) -> Apply:
        kind, element = walk.find("value", RESOURCE_TYPE), walk.find("element", RESULTS)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            of_broker = False
            known: Search | None = None
            for mark, start, end in hits:
                if mark == kind:
                    of_broker = buf[start] == BROKER
                elif mark == element and of_broker:
                    known = endpoint_search(context) if known is None else known
                    self.hide(buf, start, end, edits, context, known)

        return apply

    def hide(self, buf: Buffer, start: int, end: int, edits: Edits, context: Context, known: Search) -> None:
        """Put the edits of the result at buf[start:end]."""
        inner: Hits = []
        self.inner.run(buf, start, end, inner)
        paths = [mark.path for mark in self.inner.marks]
        name, hidden = b"", False
        for mark, begin, stop in each(inner):
            path = paths[mark]
            if path in (NAME, SYNONYM):
                name = read_string(buf, begin, stop, self.compact) or b""
                hidden = hidden and path == SYNONYM
            elif path in (VALUE, SYNONYM_VALUE):
                value = read_string(buf, begin, stop, self.compact)
                if value is None:
                    continue
                hides = has_address(name, value, known)
                if hides or (hidden and path == SYNONYM_VALUE):
                    edits.replace(begin, stop, COMPACT_NULL if self.compact else NULL)
                    context.rewrote("broker_configs")
                hidden = hidden or (hides and path == VALUE)
            elif path == SENSITIVE and hidden:
                edits.replace(begin, stop, b"\x01")


def has_address(name: bytes, value: bytes, known: Search) -> bool:
    """Return True if the setting's value contains an address of a broker. `known` finds those of known brokers."""
    if name in PARTS or (b":" in value and LISTS.fullmatch(name)):
        return bool(value)
    if b":" not in value:
        return False
    return known(value.lower())


def endpoint_search(context: Context) -> Search:
    """Return a test whether a value in lower case contains the address of a broker in the connection's context.

    It has an automaton for each MAX_LETTERS bytes of addresses, so a value takes linear time for any number of nodes.
    """
    found = set()
    for host, port, _ in each(context.nodes.values()):
        found |= {f"{host}:{port}", f"[{host}]:{port}"}
    tests, part, letters = list[Search](), list[bytes](), 0
    for one in sorted(found):
        literal = one.lower().encode("utf-8", "surrogateescape")
        if letters + len(literal) > MAX_LETTERS:
            tests.append(search(frozenset(part)))
            part, letters = [], 0
            rest()
        part.append(literal)
        letters += len(literal)
    tests.append(search(frozenset(part)))
    return lambda value: any(test(value) for test in tests)


def config_addresses(key: int, version: int) -> ConfigAddresses | None:
    """Return the rewrite of this response; None: it has no configs of brokers."""
    if key != DESCRIBE_CONFIGS or version not in schema.load(key).versions:
        return None
    body = layout.body(key, version, "response")
    paths = {slot.path for slot in body.everywhere()} & {NAME, VALUE, SENSITIVE, SYNONYM, SYNONYM_VALUE}
    (results,) = (slot.struct for slot in body.slots if slot.path == RESULTS)
    assert results is not None
    return ConfigAddresses(compile_walk(results, paths, "DescribeConfigs result", version), body.flexible)
