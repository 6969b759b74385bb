"""Steps of the plan: how deep to look at the frames of one (api, version), and the counts of them.

The plan: for every (api, version), how deep to look, compiled from the rules that a connection is bound to.

A `Plan` is a dict from `api key << 16 | version` to a `Step`, filled on first use: the lookup is one dict access, and
the codec of a message is compiled when its first frame passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kproxy.base.bounded_map import unheld
from kproxy.protocol.framing import produce_acks
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import has_no_endpoints
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import (
    ADD_RAFT_VOTER,
    API_VERSIONS,
    ENVELOPE,
    FETCH,
    METADATA,
    PRODUCE,
    REMOVE_RAFT_VOTER,
    SHARE_FETCH,
    TELEMETRY,
    UNREGISTER_BROKER,
    UNREGISTER_CONTROLLER,
    UPDATE_FEATURES,
)
from kproxy.rules.kinds.allow_from import AllowFrom
from kproxy.rules.kinds.base.rule import AFTER_LOGIN, Effect
from kproxy.rules.kinds.limit_versions import VersionLimits
from kproxy.rules.names.composed import NameMaps
from kproxy.rules.rule_set import ActiveRule, MatchingRules
from kproxy.session.rewrite.addresses import address_rewrite, carries_addresses, config_addresses, newest_rewritable
from kproxy.session.rewrite.names import by_id, known_heads, name_rewrite, single_topic_rewriter
from kproxy.session.rewrite.names.rewrites import SingleTopicRewriter
from kproxy.session.rewrite.racks import FetchRacks, rack_rewrite
from kproxy.session.rewrite.rewriter import Rewrite, Rewriter, Splicer
from kproxy.session.rewrite.versions import HIDDEN, VersionsAnswers
from kproxy.session.sasl.identity import ANSWERED

from .counters import ApiTally, Tallies
from .rule_program import RuleProgram, compile_rules, unread

HEAD: Final = 1
"""A few leading fields are read, then the frame passes as it streams in (Produce: acks)."""
WHOLE: Final = 2
"""The frame is decoded once it is complete."""
STREAM: Final = 3
"""Like WHOLE when it is short or complete in the buffer; otherwise it streams, and only its tail is decoded (Fetch:
NodeEndpoints)."""
STOP: Final = 4
"""The frame is not let through, and closes the connection."""
LIVE: Final = 5
"""Live rules may apply; then it is handled by the step's `plain` twin."""

Acks = Callable[..., int | None]
Clean = Callable[[Buffer, int, int], bool]


class Step:
    """Step of one API and version, found by one lookup a frame: handling of its request and response. None: nothing, it
    is opaque.

    `tally` counts for every step of this API and version, in whatever plan; `latency` is the tally's.
    """

    __slots__ = (
        "acks",
        "api",
        "by_id",
        "clean",
        "flexible",
        "key",
        "latency",
        "no_nodes",
        "only_ids",
        "program",
        "racks",
        "request",
        "request_heads",
        "response",
        "response_heads",
        "rewrite_request",
        "rewrite_response",
        "splice_request",
        "splice_response",
        "stop",
        "tally",
        "version",
        "watched",
    )  # fmt: skip

    def __init__(self, key: int, version: int, api: str) -> None:
        self.key, self.version, self.api = key, version, api
        self.request: int | None = None
        self.response: int | None = None
        self.acks: Acks | None = None
        self.flexible = False  # in a Produce, acks follows a tag buffer and a compact string
        self.rewrite_request: Rewriter | None = None
        self.rewrite_response: Rewriter | None = None
        self.splice_request: Splicer | None = None  # a frame with one place to change is not held or copied
        self.splice_response: Splicer | None = None
        self.request_heads: SingleTopicRewriter | None = None  # the same splicers, where frames are mostly alike
        self.response_heads: SingleTopicRewriter | None = None
        self.no_nodes: Clean | None = (
            None  # tests that a whole response has no broker address, also where names are changed
        )
        self.by_id = False  # a response's only names are topic ids, which matter once one was disguised in a request
        self.only_ids = False  # and nothing else is needed from it
        self.racks: FetchRacks | None = None  # a Fetch where only the rack changes
        self.watched = False  # its frames contain the client's identity
        self.stop = ""  # the reason, when `request` is STOP
        self.clean: Clean | None = None  # tests that a whole response has nothing to process
        self.program: RuleProgram | None = None
        self.tally = ApiTally(api, "", "")
        self.latency = self.tally.latency

    @property
    def plain(self) -> Step:
        """Return the step to follow after the live rules were applied: the same without live rules."""
        return self

    def count_in(self, tally: ApiTally) -> None:
        self.tally, self.latency = tally, tally.latency

    @property
    def depth(self) -> str:
        """Return the decode depth for metrics and events: none, header, fields or full."""
        words = {None: "none", HEAD: "header", WHOLE: "fields", STREAM: "fields", STOP: "none"}
        if self.api == "ApiVersions" or (self.program is not None and self.program.reads_bodies):
            return "full"
        if self.program is not None:
            return "header"
        return words[max((self.request or 0), (self.response or 0)) or None]


class RuledStep(Step):
    """Step of frames that live rules may apply to: `plain` is the one to follow afterwards, a step without rules."""

    __slots__ = ("plain",)

    plain: Step

    def __init__(self, plain: Step) -> None:
        super().__init__(plain.key, plain.version, plain.api)
        self.plain = plain


CLUSTER_MEMBERS = frozenset(
    (UPDATE_FEATURES, UNREGISTER_BROKER, ADD_RAFT_VOTER, REMOVE_RAFT_VOTER, UNREGISTER_CONTROLLER)
)
"""APIs that change the membership of a cluster."""
SHARE_STATE = frozenset(range(83, 88))
"""Requests of share groups' coordinators to the brokers that keep their state (KIP-932)."""
STREAMED = frozenset((FETCH, SHARE_FETCH))  # their addresses come last, after the records
TAGGED_ENDPOINTS = frozenset((PRODUCE, FETCH))
"""Produce and Fetch name brokers in a tagged field, when a leader has moved (KIP-951): most responses do not."""
MOST_STEPS = 4096
"""Steps cached for (api, version) pairs, in addition to those of the table, which are always kept: a client may send
any of 2^32 pairs, and connections share the cache, so other steps are made each time."""


@dataclass(frozen=True)
class ConnectionSettings:
    """Requirements of the rules for a connection, as far as they are fixed when the connection opens."""

    names: NameMaps | None = None
    advertise: bool = True
    hide_unknown_apis: bool = True
    versions: VersionLimits | None = None
    ends_sasl: bool = False  # SASL requests are not forwarded to the broker
    rack: bytes | None = None  # of clients that send none
    telemetry: str = ""  # auto, always or never, where clients' metrics are taken

    @classmethod
    def of(
        cls, held: MatchingRules, *, advertise: bool, hide: bool = True, ends_sasl: bool = False, telemetry: str = ""
    ) -> ConnectionSettings:
        """Return the requirements of these rules, the listener and the limits.

        Topics in clients' metrics have the client's names, so where the broker has others they do not go there.
        """
        rack = None if held.rack is None else held.rack.encode()
        if telemetry == "auto" and held.names is not None:
            telemetry = "always"
        return cls(held.names, advertise, hide, held.versions, ends_sasl, rack, telemetry)


def is_for_brokers(key: int) -> bool:
    """Return True for an API that brokers and controllers use among each other, or that changes their membership."""
    return key in CLUSTER_MEMBERS or key in SHARE_STATE or "broker" not in schema.load(key).listeners


def is_known(key: int, version: int) -> bool:
    """Return True if the table has this version of this API."""
    return key in schema.paths() and version in schema.load(key).versions


class Plan(dict[int, Step]):
    """Plan of connections that are bound to the same rules: steps by `key << 16 | version`, the header's first four
    bytes as one unsigned integer."""

    def __init__(
        self, bound: ConnectionSettings, live: Sequence[ActiveRule] = (), tallies: Tallies | None = None
    ) -> None:
        super().__init__()
        self.bound, self.live = bound, tuple(live)
        self.tallies = Tallies() if tallies is None else tallies
        self.connecting = [one for one in self.live if one.rule.connects and not isinstance(one.rule, AllowFrom)]
        self.shaped = [running for running in self.live if type(running.effect).shape is not Effect.shape]
        own = {key: schema.load(key).versions.last for key in sorted(ANSWERED)} if bound.ends_sasl else {}
        told = dict.fromkeys(sorted(TELEMETRY), 0) if self.takes_telemetry else {}
        always = bound.telemetry == "always"
        self.versions = VersionsAnswers(unheld(self.allowed), own | told if always else own, {} if always else told)

    def __missing__(self, code: int) -> Step:
        key, version = code >> 16, code & 0xFFFF
        plain = self.make(key, version) if key in schema.paths() else self.unknown(key, version)
        step = self.with_rules(plain)
        tally = self.tallies.of(key, version, step.api, step.depth)
        step.count_in(tally)
        plain.count_in(tally)
        if len(self) < MOST_STEPS or is_known(key, version):
            self[code] = step
        return step

    def with_rules(self, plain: Step) -> Step:
        """Return the step itself, or one in front of it where live rules can apply to such frames."""
        if plain.request == STOP or not self.live:
            return plain
        if forbids := unread(plain.key, plain.version, self.live):
            plain.request = STOP
            plain.stop = f'{plain.api} {plain.version} is not known, and the rule "{forbids}" may forbid what it asks'
            return plain
        rules = compile_rules(plain.key, plain.version, self.live)
        if rules is None:
            return plain
        step = RuledStep(plain)
        step.request = step.response = LIVE
        step.program = rules
        return step

    @cached_property
    def by_principal(self) -> bool:
        """Return True if a rule that limits clients selects by principal, or a rule about content writes it."""
        waiting = (one.rule for one in self.live if one.rule.family in AFTER_LOGIN and not one.dry_run)
        return any(rule.reads_principal for rule in waiting)

    @property
    def takes_telemetry(self) -> bool:
        """Return True if kproxy may answer clients that push their metrics: a rule may hide the APIs for it."""
        return self.bound.telemetry in ("auto", "always") and not any(self.refusal(key, 0) for key in TELEMETRY)

    @cached_property
    def hides_unknown(self) -> bool:
        return self.bound.advertise and self.bound.hide_unknown_apis

    def allowed(self, key: int) -> tuple[int, int] | None:
        """Return the first and last version of this API that a client may use, by the rules and by the versions that
        kproxy decodes; None: any."""
        newest = self.newest(key)
        if newest is None and key in schema.paths():
            last = schema.load(key).versions.last
            newest = last if key != ENVELOPE and unread(key, last + 1, self.live) else None
        span = None if self.bound.versions is None else self.bound.versions.span(key)
        if newest is None:
            return span
        first, last = span or (0, newest)
        return first, min(last, newest)

    @property
    def newest_api_versions(self) -> int | None:
        """Return the version reported to a client whose version of ApiVersions is unknown; None: the newest that kproxy
        decodes."""
        span = self.allowed(API_VERSIONS)
        return None if span is None else span[1]

    def refusal(self, key: int, version: int) -> str:
        """Return why the rules do not let this version pass; empty when they do."""
        return "" if self.bound.versions is None else self.bound.versions.refusal(key, version)

    @cached_property
    def isolates(self) -> bool:
        """Return True if names of others must not be seen or reached, so that nothing passes that kproxy cannot
        read."""
        return self.bound.names is not None and self.bound.names.isolates

    def newest(self, key: int) -> int | None:
        """Return the newest version of this API that kproxy can let pass; None: any; HIDDEN: none."""
        if key not in schema.paths():
            return HIDDEN if self.hides_unknown or self.isolates or unread(key, 0, self.live) else None
        if self.isolates and is_for_brokers(key):
            return HIDDEN
        if key == ENVELOPE and unread(key, 0, self.live):
            return HIDDEN
        if self.bound.advertise:
            limit = newest_rewritable(key)
            if limit is not None:
                return limit
        return schema.load(key).versions.last if self.isolates or self.understands(key) else None

    def understands(self, key: int) -> bool:
        """Return True if frames of this API are read, so that only versions of the table may pass."""
        if key in (PRODUCE, API_VERSIONS):
            return True
        names = self.bound.names
        if names is None:
            return False
        newest = schema.load(key).versions.last
        return any(name_rewrite(key, newest, direction, names) for direction in ("request", "response"))

    def unknown(self, key: int, version: int) -> Step:
        step = Step(key, version, "unknown")
        if self.hides_unknown:
            step.stop = f"api key {key} is not known, and an answer of it could name a broker's address"
        elif self.isolates:
            step.stop = f"api key {key} is not known, and could reach what belongs to others"
        else:
            step.stop = self.refusal(key, version)
        if step.stop:
            step.request = STOP
        return step

    def make(self, key: int, version: int) -> Step:
        """Return the step of an API that the table has, in any version."""
        api = schema.load(key)
        step = Step(key, version, api.name)
        if key == API_VERSIONS:
            step.request = step.response = WHOLE
            step.watched = version in api.versions and not self.refusal(key, version)
            return step
        if refusal := self.refusal(key, version):
            step.request, step.stop = STOP, refusal
            return step
        newest = self.newest(key)
        if self.bound.ends_sasl and key in ANSWERED:  # in a version that is not read it must not get there, either
            newest = api.versions.last
        if newest is not None and not (version in api.versions and version <= newest):
            step.request, step.stop = STOP, self.reason(api, version, newest)
            return step
        if version not in api.versions:
            return step
        self.inspect_request(step)
        self.inspect_response(step)
        if self.bound.telemetry and key in TELEMETRY:
            step.request = WHOLE
        if key in ANSWERED:  # after a handshake of version 0 raw tokens follow, without headers (KIP-43)
            step.request = step.response = WHOLE
            step.watched = True
        return step

    def reason(self, api: schema.Api, version: int, newest: int) -> str:
        if self.isolates and is_for_brokers(api.key):
            return f"{api.name} {version} is for those who run the cluster, and could reach what belongs to others"
        if api.key == ENVELOPE and newest == HIDDEN:
            return f"{api.name} {version} holds a request that could reach what a rule forbids"
        if self.bound.advertise and carries_addresses(api.key) and version in api.versions:
            return f"{api.name} {version} answers with broker addresses that cannot be rewritten"
        return f"{api.name} {version} is not known, the newest version that is read is {max(newest, 0)}"

    def inspect_request(self, step: Step) -> None:
        rewrites = self.rewrites(step, "request")
        if step.key == PRODUCE:
            step.request, step.acks = HEAD, produce_acks(step.version)
            step.flexible = step.version in schema.load(PRODUCE).flexible
        if rewrites:
            step.request = WHOLE
            step.rewrite_request = Rewriter(step.key, step.version, "request", rewrites)
            if step.key == FETCH and len(rewrites) == 1 and self.bound.rack is not None:
                step.splice_request = step.racks = FetchRacks(step.version, self.bound.rack)
            else:
                step.splice_request = self.single_topic(step, "request")
                step.request_heads = known_heads(step.splice_request)

    def inspect_response(self, step: Step) -> None:
        rewrites = self.rewrites(step, "response")
        if not rewrites:
            return
        repeats = step.key == METADATA and not self.isolates  # otherwise topic ids are cached, and converted
        step.rewrite_response = Rewriter(step.key, step.version, "response", rewrites, repeats=repeats)
        addresses = address_rewrite(step.key, step.version)
        step.response = WHOLE
        step.splice_response = self.single_topic(step, "response")
        step.response_heads = known_heads(step.splice_response)
        alone = len(rewrites) == 1
        step.by_id = self.bound.names is not None and by_id(step.key, step.version, self.bound.names)
        step.only_ids = step.by_id and alone
        if self.bound.advertise and addresses is not None:
            if (alone or step.by_id) and step.key in STREAMED:
                step.response = STREAM
            if step.key in TAGGED_ENDPOINTS:
                step.no_nodes = has_no_endpoints(step.key, step.version, addresses.wanted)
                step.clean = step.no_nodes if alone else None

    def single_topic(self, step: Step, direction: str) -> Splicer | None:
        names = self.bound.names
        return None if names is None else single_topic_rewriter(step.key, step.version, direction, names)

    def rewrites(self, step: Step, direction: str) -> list[Rewrite]:
        found: list[Rewrite] = []  # addresses first: they may have to wait, and nothing must be counted twice
        if self.bound.advertise and direction == "response":
            addresses = address_rewrite(step.key, step.version)
            if addresses is not None:
                found.append(addresses)
            configs = config_addresses(step.key, step.version)
            if configs is not None:
                found.append(configs)
        if self.bound.names is not None:
            names = name_rewrite(step.key, step.version, direction, self.bound.names)
            if names is not None:
                found.append(names)
        if self.bound.rack is not None and direction == "request":
            racks = rack_rewrite(step.key, step.version, self.bound.rack)
            if racks is not None:
                found.append(racks)
        return found
