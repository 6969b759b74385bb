"""`kproxy explain`: shows the effect of rules on requests of an API, or on a frame, with reasons.

*target*: a request, as a frame or as an API and version · *opinion*: the effect of one rule on it, with reasons ·
*survey*: the opinions of all rules about one target
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

import click

from kproxy.base.errors import DecodeError, InputError
from kproxy.base.named_file import MOST_BYTES, read_named, reason
from kproxy.base.terminal import StyledLine, print_styled, say
from kproxy.cli.decode import find_api, frames, known_version
from kproxy.protocol.framing import framed
from kproxy.rules.kinds.base.rule import Rule
from kproxy.rules.kinds.limit_versions import LimitVersions
from kproxy.rules.rule_set import RuleSet
from kproxy.rules.select.frame_match import OF_ENTITY
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.plan import ConnectionSettings, Plan, Step
from kproxy.tools.rehearse.cases.compare import check_untouched
from kproxy.tools.rehearse.cases.connection import CaseConnection
from kproxy.tools.rehearse.cases.model import ClientConnection
from kproxy.tools.rehearse.dialogue import judged, response
from kproxy.tools.rehearse.explain.evaluate import Opinion, opinion
from kproxy.tools.rehearse.explain.target import OF_CONNECTION, Target, explain_selectors, finding

if TYPE_CHECKING:
    from kproxy.protocol.records import Record


@dataclass(frozen=True)
class Survey:
    """Survey of one target. `positions`: each rule's place in its file, by name. `happens`: lines about the final
    outcome for the frame."""

    step: Step
    opinions: tuple[Opinion, ...]
    positions: dict[str, str]
    happens: tuple[str, ...]


class Surveyor:
    """Surveyor of a rule set: asks all rules, in file order, about one target after the other. Rules count the targets
    as the proxy would.

    `nth`: number of the first target, from 1, among the requests that a rule is about. `now`: seconds since the start.
    """

    def __init__(self, rules: RuleSet, *, nth: int, now: float, advertise: bool) -> None:
        self.rules, self.nth, self.now, self.advertise = rules, nth, now, advertise
        self.connection: CaseConnection | None = None

    def survey(self, target: Target) -> Survey:
        """Return the opinions of all rules about a target, and the outcome for its frame."""
        rules, now = self.rules, self.now
        running = {one.name: one for one in rules.live}
        client_id = target.message.header.get("client_id")
        for one in rules.live if self.nth > 1 else ():
            for _ in range(self.nth - 1):
                one.count(fired=one.trigger.fires(now, 1, client_id))
        opinions = tuple(opinion(rule, running.get(rule.name), target, now) for rule in rules.rules)
        positions = dict(zip((rule.name for rule in rules.rules), rules.origins, strict=True))
        step = plan(target, rules, self.advertise)[target.key << 16 | target.version]
        happens: tuple[str, ...] = ()
        if target.frame is not None and self.nth == 1 and not now:
            happens = tuple(self.outcome(target, target.frame, any(one.word == "depends" for one in opinions)))
        self.nth = 1
        return Survey(step, opinions, positions, happens)

    def outcome(self, target: Target, frame: bytes, is_open: bool) -> Iterator[str]:
        """Yield in words the outcome for the frame under all rules together, from a session without a network.

        `is_open`: a rule depends on unknown facts, so the outcome is unknown.
        """
        yield ""
        if is_open:
            yield "  what becomes of it depends on what is said above; say more of the connection, such as --listener"
            return
        if self.connection is None:
            facts, known = target.facts, target.known
            spec = ClientConnection(
                listener=facts.listener, cluster=facts.cluster, client_address=facts.client_address, sni=facts.sni,
                certificate=facts.certificate, node=facts.node, principal=known.get("principal"),
                client_software=known.get("client_software"), advertise=self.advertise,
            )  # fmt: skip
            self.connection = CaseConnection(spec, RuleSet(self.rules.rules, self.rules.origins), judged(), 1, {}, 0.0)
        if self.connection.closed is not None:
            yield "  the connection is closed already"
            return
        self.connection.send(framed(frame))
        yield from came_out(self.connection)
        while self.connection.asked:  # responses keep their order: without this one, kproxy's own next one would wait
            asked = self.connection.asked.popleft()
            self.connection.respond(asked, response(asked.key, asked.version, asked.correlation))
        self.connection.take(CLIENT)


def plan(target: Target, rules: RuleSet, advertise: bool) -> Plan:
    """Return the plan of a connection. All rules that may hold are in force.

    Versions are limited only by rules that surely hold, since a request beyond a limit is stopped.
    """
    bound = rules.bind_without(frozenset(index for index, rule in enumerate(rules.rules) if not applies(rule, target)))
    return Plan(ConnectionSettings.of(bound, advertise=advertise or bound.advertise is not None), bound.live)


def applies(rule: Rule, target: Target) -> bool:
    """Return True if the rule can be about the target's connection, as far as its facts are known."""
    if isinstance(rule, LimitVersions):
        return explain_selectors(rule, target.subject).word == "holds"
    used = [name for name in OF_CONNECTION if getattr(rule.match, name, None) is not None]
    return not any(finding(rule.match, name, target.subject).word == "fails" for name in used if rule.match)


def came_out(connection: CaseConnection) -> Iterator[str]:
    waits = min((when for when in connection.wakes if when > connection.now), default=None)
    to_broker, to_client = connection.take(BROKER), connection.take(CLIENT)
    if waits is not None and not to_broker and not to_client:
        yield f"  the request waits for {waits:g} s"
        connection.advance(connection.now + waits)
        to_broker, to_client = connection.take(BROKER), connection.take(CLIENT)
    for piece in to_broker:
        wrong = [one for _, found in check_untouched(piece) for one in found]
        how = ", changed" if wrong else ": the very bytes"
        yield f"  the broker gets {piece}{how}"
        for one in wrong:
            yield f"            {one.path}: {one.expected} → {one.found}"
    if not to_broker:
        yield "  the broker gets nothing"
    for piece in to_client:
        yield f"  the client gets {piece} of kproxy's own"
    if connection.closed is not None:
        yield f"  the connection is closed: {connection.closed.message}"


SHORTEST_FRAME = 20
"""Fewest hexadecimal digits of a word that is read as a frame: the shortest header has ten bytes."""
PRODUCE_BY_NAME = ("Produce", "12")
"""The newest Produce with names of topics instead of ids."""
STYLES = {"acts": "green", "dry run": "green", "depends": "yellow", "not now": "yellow", "no": "dim", "never": "dim"}


def selector(name: str, what: str, parse: Callable[[str], Any] = str) -> Callable[[Any], Any]:
    """Return the option for the value of a selector: a fact about the request or its connection."""
    return click.option(f"--{name.replace('_', '-')}", name, metavar="VALUE", help=what, callback=parsed(parse))


def parsed(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    def callback(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected a whole number, got {text}") from None


def late(name: str) -> Callable[[str], Any]:
    """Return the parser of this name in kproxy.rules, which is imported when the option is used."""

    def parse(text: str) -> Any:
        from kproxy.rules.select import selected
        from kproxy.rules.values import quantities as units

        if name == "acks_number":
            return selected.acks_number(text if text == "all" else number(text))
        if name == "error_number":
            found = selected.number_in(text)
            return selected.error_number(text if found is None else found)
        return selected.topic_id(text) if name == "topic_id" else getattr(units, name)(text)

    return parse


SELECTORS = [
    selector("listener", "Name of the listener that the client connected to."),
    selector("cluster", "Name of the cluster behind it."),
    selector("client_address", "The client's IP address."),
    selector("sni", "Host name of the TLS handshake."),
    selector("certificate", "Subject of the client's certificate."),
    selector("node", "Id of the broker that the connection is for.", number),
    selector("client_id", "Client id in the header."),
    selector("principal", "Authenticated principal."),
    selector("client_software", "name/version of the client's library."),
    selector("acks", "acks of a Produce request.", late("acks_number")),
    selector("size", "Length of the request.", late("parse_size")),
    selector("topic", "Topic that it is about."),
    selector("topic_id", "Id of the topic.", late("topic_id")),
    selector("partition", "Partition that it is about.", number),
    selector("group", "Group that it is about."),
    selector("transactional_id", "Transactional id that it is about."),
    selector("member", "Member id within the group."),
    selector("offset", "Offset that is asked for or committed.", number),
    selector("error", "Error that the broker answers with.", late("error_number")),
]


def selectors(function: Callable[..., None]) -> Callable[..., None]:
    for one in reversed(SELECTORS):
        function = one(function)
    return function


@click.command("explain")
@click.argument("rules", type=click.Path(exists=True))
@click.argument("what", metavar="API [VERSION] | FRAME", nargs=-1)
@selectors
@click.option("--record", metavar="FILE", help="File with the value of a record; - is standard input.")
@click.option("--key", help="Key of the record (default: null).")
@click.option("--header", multiple=True, metavar="NAME=VALUE", help="Header of the record; may be repeated.")
@click.option("--nth", type=click.IntRange(1), default=1, help="The request is the Nth that a rule is about.")
@click.option(
    "--at", metavar="TIME", default=0.0, callback=parsed(late("parse_duration")), help="So long after the start."
)
@click.option("--advertise/--no-advertise", default=True, help="Replace broker addresses in responses (default: yes).")
@click.option("--all", "everything", is_flag=True, help="Also show rules that never match this API.")
@click.pass_context
def command(ctx: click.Context, /, *, rules: str, what: tuple[str, ...], nth: int, at: float, advertise: bool,
            everything: bool, **given: Any) -> None:  # fmt: skip
    """Show the effect of the rules in RULES (a file, a folder or a config) on a request, with reasons.

    API is a name or number; VERSION defaults to the newest. Options give further facts about the request:
    `kproxy explain rules/ Produce 9 --topic orders --acks all`. If a rule needs a fact that is not given, its result
    is `depends`, with the missing facts. FRAME is a frame as `kproxy decode` takes it: hexadecimal digits, a file, or
    standard input (-).

    With --record, record conditions are evaluated: `kproxy explain rules/ --record value.json --key k --topic orders`
    takes Produce 12.
    """
    file, key, headers = given.pop("record"), given.pop("key"), given.pop("header")
    if not what and file is None:
        raise click.UsageError("expected an API or a frame, got none")
    made = None if file is None else made_record(file, key, headers)
    known = {name: value for name, value in given.items() if value is not None}

    surveyor = Surveyor(load(rules), nth=nth, now=at, advertise=advertise)
    failed = False
    for first, target in enumerate(targets(what or PRODUCE_BY_NAME, known, made)):
        if isinstance(target, DecodeError):
            say(f"frame {first + 1}: {target}", err=True)
            failed = True
            continue
        print_styled(lines(target, surveyor.survey(target), everything, first > 0))
    ctx.exit(1 if failed else 0)


def load(path: str) -> RuleSet:
    """Return the rules of a file or folder, or those that a config names. Raises DocumentError."""
    from kproxy.app.config.document import is_config, load_config
    from kproxy.rules.document.read import load_rules
    from kproxy.rules.values.source import Source

    if Path(path).is_file() and is_config(Source.open(Path(path))):
        config = load_config(path)
        return load_rules(config.rules, config.places())
    return load_rules([path])


def made_record(file: str, key: str | None, headers: tuple[str, ...]) -> Record:
    """Return the record with the content of a file as its value. Raises InputError."""
    from kproxy.protocol.records import Record

    value = frame_bytes(file)
    if value is None:
        raise InputError(f"{file} cannot be read: file not found")
    pairs = tuple((name, text.encode()) for name, _, text in (one.partition("=") for one in headers))
    return Record(0, int(time() * 1000), None if key is None else key.encode(), value, pairs)


def targets(what: tuple[str, ...], given: dict[str, Any], record: Record | None) -> Iterator[Target | DecodeError]:
    """Yield the requests that the command's words name: frames, or APIs with or without a version.

    A frame that cannot be decoded is yielded as its error.
    """
    from kproxy.rules.select.selected import number_in
    from kproxy.tools.rehearse.explain.target import of_api

    data = frame_bytes(what[0]) if len(what) == 1 else None
    if data is not None:
        if record is not None:
            raise click.UsageError("expected an API with --record, got a frame")
        yield from of_frames(data, given)
        return
    rest = list(what)
    while rest:
        api = find_api(rest.pop(0))
        version = int(rest.pop(0)) if rest and number_in(rest[0]) is not None else api.versions.last
        yield of_api(api.key, known_version(api, version), given, record, time())


def frame_bytes(word: str) -> bytes | None:
    """Return the frames of a word: standard input, a file's content, or its digits; None if it names an API.

    Raises InputError for a file that cannot be read.
    """
    if word == "-":
        return sys.stdin.buffer.read(MOST_BYTES)
    if len(word) >= SHORTEST_FRAME and all(char in "0123456789abcdefABCDEF:" for char in word):
        return word.encode()
    if not Path(word).exists():
        return None
    try:
        return read_named(word)
    except OSError as error:
        raise InputError(f"{word} cannot be read: {reason(error)}") from None


def of_frames(data: bytes, given: dict[str, Any]) -> Iterator[Target | DecodeError]:
    from kproxy.protocol import decode_request
    from kproxy.tools.rehearse.explain.target import of_frame

    for name in (*OF_ENTITY, "client_id", "acks", "size"):
        if name in given:
            raise click.UsageError(f"--{name.replace('_', '-')} is already set by the frame")
    found = False
    try:
        for frame in frames(data):
            found = True
            try:
                yield of_frame(decode_request(frame), frame, given)
            except DecodeError as error:
                yield error
    except InputError as error:
        raise click.ClickException(str(error)) from None
    if not found:
        raise click.ClickException("no frame in the input")


def lines(target: Target, found: Survey, everything: bool, another: bool) -> Iterator[StyledLine]:
    """Yield the explanation of one target. `another`: start with an empty line."""
    from kproxy.tools.rehearse.explain.evaluate import sides, told

    if another:
        yield StyledLine("")
    size = "" if target.frame is None else f", {len(target.frame)} bytes{told(target.entities)}"
    yield StyledLine(f"{target.subject.api}{size}", "bold")
    for side, text in zip(("request", "response"), sides(found.step), strict=True):
        yield StyledLine(f"  {side:9} {text}")
    shown = [one for one in found.opinions if everything or one.word != "never"]
    for one in shown:
        yield from told_of(one, found.positions[one.rule.name])
    left_out = len(found.opinions) - len(shown)
    if left_out:
        yield StyledLine("")
        of = "rule is" if left_out == 1 else "rules are"
        yield StyledLine(f"  {left_out} {of} never about it (--all shows them)", "dim")
    for text in found.happens:
        yield StyledLine(text)


def told_of(one: Opinion, position: str) -> Iterator[StyledLine]:
    yield StyledLine("")
    yield StyledLine(f"  {one.word:9} {one.rule.name}", STYLES[one.word])
    yield StyledLine(f"            {one.rule.kind}, {position}", "dim")
    for text in one.lines:
        yield StyledLine(f"            {text}")
