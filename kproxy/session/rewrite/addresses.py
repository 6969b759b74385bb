"""Broker addresses in responses: replaced by the addresses of the proxy, or redacted (guarantee 3).

Strategy. A response that carries broker addresses is either rewritten here (`PLACES`) or its API is stopped: hidden in
ApiVersions, and a frame of it closes the connection. `carries_addresses` finds both in the table by the kind `host`. So
an API added to the table is stopped until its place is listed.

Broker configs in DescribeConfigs responses are redacted. A value with addresses becomes null and its entry sensitive,
as in a broker's own redacted configs. So clients see a redacted value, and a broker refuses to store it, because it
does not accept null. Two kinds of settings are redacted: those with a name that ends like an address setting's, and any
other value that contains a broker address known to the client. Results about topics and groups are not searched.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from kproxy.base.cooperative import yield_now, yielding
from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, Walk, compile_walk, read_string, write_string
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import (
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_QUORUM,
    FIND_COORDINATOR,
    METADATA,
)
from kproxy.rules.select.match import MAX_LETTERS, Search, search

from .context import GONE, Context, NeedsLookup, too_many_nodes
from .rewriter import Apply

CONTROLLERS = 2  # DescribeCluster's endpoint_type (KIP-919)
ENDPOINT_TYPE = "endpoint_type"
COORDINATOR_NOT_AVAILABLE = 15


@dataclass(frozen=True, slots=True)
class Place:
    """Position of broker addresses in a response: the array that holds them ("" for the top level) and the names of
    their fields. `what` is the label that metrics count them by."""

    array: str
    node: str
    what: str
    optional: bool = False
    """Elements that name a node which cannot be reached may be left out; clients then ask Metadata."""
    error: str = ""
    """The error code field of the same element: set when the node cannot be reached and may not be left out."""
    never: bool = False
    """Addresses that no client goes to: all elements are left out."""

    @property
    def roles(self) -> Mapping[str, str]:
        found = {"node": self.node, "host": "host", "port": "port"}
        return found | {"error": self.error} if self.error else found

    def path(self, field: str) -> str:
        return f"{self.array}.{field}" if self.array else field


ENDPOINTS = Place("node_endpoints[]", "node_id", "node_endpoints", optional=True)  # KIP-951
PLACES: Mapping[int, tuple[Place, ...]] = {
    0: (ENDPOINTS,),
    1: (ENDPOINTS,),
    METADATA: (Place("brokers[]", "node_id", "brokers", optional=True),),
    FIND_COORDINATOR: (
        Place("", "node_id", "coordinators", error="error_code"),
        Place("coordinators[]", "node_id", "coordinators", error="error_code"),
    ),
    DESCRIBE_QUORUM: (Place("nodes[].listeners[]", "", "controllers", optional=True, never=True),),  # KIP-853
    DESCRIBE_CLUSTER: (Place("brokers[]", "broker_id", "brokers", optional=True),),
    78: (ENDPOINTS,),
    79: (ENDPOINTS,),
}


@cache
def carries_addresses(key: int) -> schema.Versions:
    """Return the versions of this API with hosts of brokers or controllers in the response."""
    return layout.kinds(key, "response").get("host", schema.NONE)


@cache
def newest_rewritable(key: int) -> int | None:
    """Return the newest version of responses that may pass while advertising; None: any; -1: the API is stopped
    altogether.

    The KRaft APIs that carry leaders' addresses are for brokers among themselves and have no business on a client's
    connection.
    """
    versions = carries_addresses(key)
    if not versions:
        return None
    if key in PLACES:
        return schema.load(key).versions.last
    return versions.first - 1


@dataclass(frozen=True, slots=True)
class AddressRewrite:
    """Rewrite of one response that replaces host and port of every node by the advertised ones."""

    key: int
    places: tuple[Place, ...]
    wanted: frozenset[str]
    compact: bool

    def bind(self, walk: Walk) -> Apply:
        roles: dict[int, tuple[str, Place | None]] = {}
        for index, mark in enumerate(walk.marks):
            if mark.what == "value" and mark.path == ENDPOINT_TYPE:
                roles[index] = (ENDPOINT_TYPE, None)
            for place in self.places:
                for role, name in place.roles.items():
                    if mark.what == "value" and mark.path == place.path(name):
                        roles[index] = (role, place)
                if mark.path == place.array and mark.what in ("count", "element"):
                    roles[index] = (mark.what, place)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> NeedsLookup | None:
            replacing = Replacing(buf, edits, context, self.compact)
            for hit in hits:
                role, place = roles.get(hit[0], ("", None))
                if role:
                    replacing.take(role, place, hit)
            replacing.flush()
            return replacing.end()

        return apply


class Replacing:
    """Pass over the hits of one response, in wire order: gathers the spans of each node's fields and edits them
    together."""

    def __init__(self, buf: Buffer, edits: Edits, context: Context, compact: bool) -> None:
        self.buf, self.edits, self.context, self.compact = buf, edits, context, compact
        self.spans: dict[str, tuple[int, int]] = {}
        self.place: Place | None = None
        self.list_count: tuple[int, int, int] = (0, 0, 0)
        self.listed = 0  # elements of lists that have each node once
        self.changed: Counter[str] = Counter()  # addresses, by counter name
        self.hidden = 0  # nodes
        self.missing: dict[int, tuple[str, int]] = {}  # nodes without a known address of kproxy
        self.controllers = False

    def take(self, role: str, place: Place | None, hit: tuple[int, int, int]) -> None:
        _, start, end = hit
        if role == ENDPOINT_TYPE:
            self.controllers = self.buf[start] == CONTROLLERS
        elif role == "count":
            self.list_count = hit
        elif role == "element":
            self.flush((start, end))
        else:
            self.place = place
            self.spans[role] = (start, end)

    def number(self, role: str) -> int:
        start, end = self.spans[role]
        return int.from_bytes(self.buf[start:end], "big", signed=True)

    def flush(self, element: tuple[int, int] | None = None) -> None:
        """Replace the address of the node that the gathered fields describe, or hide the node; do nothing without
        gathered fields. `element` is the span of the array's element that ends here."""
        spans, self.spans = self.spans, {}
        if "port" not in spans:
            return
        assert self.place is not None
        self.spans = spans
        if self.place.optional and not self.place.never:
            self.listed += 1
            if self.listed > self.context.max_nodes:
                raise too_many_nodes(self.context.max_nodes)
        given = GONE if self.place.never else self.given()
        self.spans = {}
        if given is None:
            return
        self.changed[self.place.what] += 1
        if given != GONE:
            self.put(spans, given)
        elif self.place.optional and element is not None:
            self.edits.remove(*element, self.list_count)
            if not self.place.never:
                self.hidden += 1
        else:
            self.put(spans, given)
            self.edits.replace(*spans["node"], (-1).to_bytes(4, "big", signed=True))
            if "error" in spans:
                self.edits.replace(*spans["error"], COORDINATOR_NOT_AVAILABLE.to_bytes(2, "big"))
            self.hidden += 1

    def end(self) -> NeedsLookup | None:
        """Count the changes, or return the lookup of missing nodes; the rewrite is repeated after it."""
        if self.missing:
            return NeedsLookup(self.missing)
        for what, number in self.changed.items():
            self.context.rewrote(what, number)
        if self.hidden:
            self.context.count("nodes_hidden", self.hidden)
        return None

    def put(self, spans: Mapping[str, tuple[int, int]], given: tuple[str, int]) -> None:
        self.edits.replace(*spans["host"], write_string(given[0].encode(), self.compact))
        self.edits.replace(*spans["port"], given[1].to_bytes(4, "big", signed=True))

    def given(self) -> tuple[str, int] | None:
        """Return the host and port to write in place of the node's, or GONE to hide the node. None: the element has no
        host, or the proxy's address is unknown; the address stays."""
        name, node, port = (
            read_string(self.buf, *self.spans["host"], self.compact),
            self.number("node"),
            self.number("port"),
        )
        if not name:  # "no node" (org.apache.kafka.common.Node.noNode)
            return None
        if node < 0 or port < 0:  # still a host, which clients must not see
            return GONE
        host = name.decode("utf-8", "surrogateescape")
        return self.context.address(controller_id(node) if self.controllers else node, host, port, self.missing)


def controller_id(node: int) -> int:
    """Return a number below -1 for a controller's id, which may be the same as a broker's and must not be mixed up with
    it."""
    return -2 - node


@cache
def address_rewrite(key: int, version: int) -> AddressRewrite | None:
    """Return the rewrite of this response, or None when it names no host."""
    if key not in PLACES or version not in carries_addresses(key):
        return None
    struct = layout.body(key, version, "response")
    paths = {slot.path for slot in struct.everywhere()}
    places = tuple(place for place in PLACES[key] if place.path("host") in paths)
    wanted = {place.path(name) for place in places for name in place.roles.values()}
    wanted |= {place.array for place in places if place.array} | ({ENDPOINT_TYPE} & paths)
    return AddressRewrite(key, places, frozenset(wanted), struct.flexible)


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
        inner: Hits = []
        self.inner.run(buf, start, end, inner)
        paths = [mark.path for mark in self.inner.marks]
        name, hidden = b"", False
        for mark, begin, stop in yielding(inner):
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
    for host, port, _ in yielding(context.nodes.values()):
        found |= {f"{host}:{port}", f"[{host}]:{port}"}
    tests, part, letters = list[Search](), list[bytes](), 0
    for one in sorted(found):
        literal = one.lower().encode("utf-8", "surrogateescape")
        if letters + len(literal) > MAX_LETTERS:
            tests.append(search(frozenset(part)))
            part, letters = [], 0
            yield_now()
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
