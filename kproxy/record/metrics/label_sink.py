"""The sink that counts by topic, client, principal and group.

An observer counts the exchanges of a connection in the cells of its summary, most of them without a full read
(`record/observer/summary.py`). The sink reads these cells before they are discarded, which is once a minute, and at
each scrape. Each cell stores its reported numbers, so every exchange is counted once, in any order of readers,
including the audit. The work is a few microseconds for each changed cell. Groups and their committed offsets are not in
cells. They are read from single exchanges of a few APIs. Topics and groups have the brokers' names: with prefixes, two
tenants may both use a topic `orders`.

Clients since Kafka 3.1 write and read by topic id. If a client received the name before kproxy started, or through
another worker, only the id is known. Such counts wait. The caller requests the names from the brokers (`to_ask`).
Counts without a name in time become `other`. Only ids that a broker has accepted without an error are stored, so
clients cannot fill it with invented ids. Ids of acks=0 requests are not stored, since they have no response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from kproxy.base.cooperative import run_to_end, yield_now
from kproxy.protocol.elements import partitions_in
from kproxy.protocol.table.api_keys import (
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    NEW_HEARTBEATS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
)
from kproxy.protocol.table.errors import error_name, numbers
from kproxy.record.exchange import Depth, ObservedExchange, Who
from kproxy.record.fanout import ClusterMetadata
from kproxy.record.observer.summary import MOST_APIS, READS, ROWS, Summary, since_1970
from kproxy.record.observer.summary_rows import OWN, ApiCounters, PartitionCounters

from .table import OTHER, LabelLine, label_text
from .totals import GroupLags, LabelTotals

PATIENCE = 60.0
"""Seconds that counts wait for a name."""
AGAIN = 20.0
"""Seconds until the brokers are asked for it once more."""
MOST_UNNAMED = 1000
"""Topics with waiting counts; further ones count as `other` at once. A label has at most 500 names."""
MOST_ASKED = 100
"""Names that a broker is asked for at a time."""

TopicId = tuple[str, bytes]
"""(cluster, the id's 16 bytes)"""


class UnnamedTopic:
    """Numbers of one topic by line. `since`: when the first came. `ask_at`: when the brokers are to be asked."""

    __slots__ = ("ask_at", "numbers", "since")

    def __init__(self, now: float) -> None:
        self.since = self.ask_at = now
        self.numbers: dict[LabelLine, float] = {}


class UnnamedTopics:
    """Topics whose counts wait for a name before they enter `totals`. `pictures`: metadata of each cluster."""

    def __init__(self, totals: LabelTotals, pictures: Mapping[str, ClusterMetadata]) -> None:
        self.totals, self.pictures = totals, pictures
        self.waiting: dict[TopicId, UnnamedTopic] = {}

    def add(self, cluster: str, topic_id: bytes, lines: list[tuple[LabelLine, float]], now: float) -> None:
        """Add numbers to those of a topic that has no name."""
        key = cluster, topic_id
        topic = self.waiting.get(key)
        if topic is None:
            if len(self.waiting) >= MOST_UNNAMED:
                self.totals.add("topic", OTHER, lines, now)
                return
            topic = self.waiting[key] = UnnamedTopic(now)
        for line, number in lines:
            topic.numbers[line] = topic.numbers.get(line, 0) + number

    def resolve(self, now: float) -> None:
        """Count what has a name by now under it, and what has waited long enough as `other`."""
        for (cluster, topic_id), topic in list(self.waiting.items()):
            picture = self.pictures.get(cluster)
            name = None if picture is None else picture.by_id.get(str(UUID(bytes=topic_id)))
            if name is not None or now - topic.since >= PATIENCE:
                del self.waiting[cluster, topic_id]
                self.count(topic, OTHER if name is None else label_text(name), now)

    def give_up(self, now: float) -> None:
        """Count all waiting counts as `other`: topics are disabled."""
        waiting, self.waiting = self.waiting, {}
        for topic in waiting.values():
            self.count(topic, OTHER, now)

    def count(self, topic: UnnamedTopic, label: str, now: float) -> None:
        """Count the numbers of a topic under this name; without a name it takes no series."""
        if topic.numbers:
            self.totals.add("topic", label, list(topic.numbers.items()), now)

    def to_ask(self, now: float) -> dict[str, list[bytes]]:
        """Return the ids, by cluster, whose names to request now: each at its arrival, and again if its name stays
        unknown for a while."""
        wanted: dict[str, list[bytes]] = {}
        for (cluster, topic_id), topic in self.waiting.items():
            ids = wanted.setdefault(cluster, [])
            if topic.ask_at <= now and len(ids) < MOST_ASKED:
                topic.ask_at = now + AGAIN
                ids.append(topic_id)
        return {cluster: ids for cluster, ids in wanted.items() if ids}


COMMITS = frozenset((OFFSET_COMMIT, TXN_OFFSET_COMMIT))
JOINS = NEW_HEARTBEATS | {JOIN_GROUP}
IN_GROUPS = COMMITS | JOINS | {OFFSET_FETCH, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP}
API_CLASSES = ("produce", "fetch", "group", "other")
CELLS_AT_ONCE = 128  # cells of hostile names take some 15 µs each

TOPIC_LINES: dict[str, tuple[LabelLine, LabelLine]] = {
    direction: (("kproxy_topic_bytes_total", direction), ("kproxy_topic_records_total", direction))
    for direction in ("produce", "fetch")
}
WHO_LINES: dict[tuple[str, str], tuple[LabelLine, ...]] = {
    (who, kind): (
        (f"kproxy_{who}_requests_total", kind),
        (f"kproxy_{who}_bytes_total", kind),
        (f"kproxy_{who}_upstream_request_duration_seconds_sum", kind),
        (f"kproxy_{who}_upstream_request_duration_seconds_count", kind),
        (f"kproxy_{who}_throttle_duration_seconds_total", kind),
    )
    for who in ("client", "principal")
    for kind in API_CLASSES
}
COMMIT_LINE: LabelLine = ("kproxy_group_commits_total", "")
JOIN_LINE: LabelLine = ("kproxy_group_joins_total", "")


class LabelSink:
    """Sink that adds the exchanges of all connections to the totals by label.

    `clock`: the observers' time. `pictures`: metadata of each cluster, which confirms topics that were only written to
    without a response.
    """

    broker_side = False

    def __init__(
        self, totals: LabelTotals, clock: Callable[[], float], pictures: Mapping[str, ClusterMetadata]
    ) -> None:
        self.totals, self.clock, self.pictures = totals, clock, pictures
        self.unnamed = UnnamedTopics(totals, pictures)
        self.summaries: dict[int, Summary] = {}  # by the connection's number
        self.use_labels()

    def use_labels(self) -> None:
        """Count by the new labels of the totals. The required depth of exchanges may change."""
        labels = self.totals.tables.keys()
        self.by_topic, self.by_group = "topic" in labels, "group" in labels
        self.whos = [one for one in ("client_id", "principal") if one in labels]

    # ---- what a Sink does

    def depth(self, key: int, version: int) -> Depth:
        """Require rows of partitions and the exchanges of groups if they are counted, otherwise nothing."""
        if key in ROWS and (self.by_topic or self.by_group):
            return Depth.ROWS
        return Depth.SKETCH if self.by_group and (key in COMMITS or key in JOINS) else Depth.COUNT

    def take(self, seen: ObservedExchange) -> None:
        """Count a commit or a join, if the broker has confirmed it."""
        if not self.by_group or seen.outcome != "answered":
            return
        if seen.key in COMMITS:
            self.take_commit(seen)
        elif seen.key in JOINS:
            self.take_join(seen)

    def take_behind(self, seen: ObservedExchange) -> None:
        """Not called: the client side is counted."""

    def opened(self, who: Who, now: float) -> None:
        """Pass: the connection's summary is made when its observer is."""

    def closed(self, who: Who, now: float) -> None:
        summary = self.summaries.pop(who.number, None)
        if summary is not None:
            summary.fold()
            self.read(summary)

    # ---- summaries

    def summary_for(
        self, who: Who, wall: Callable[[float], float] = since_1970, lined: Callable[[int, int], bool] | None = None
    ) -> Summary:
        """Return the summary of a connection, which counts all of it. `lined`: see `Summary`; no lines if left out."""
        summary = self.summaries.get(who.number)
        if summary is None:
            summary = Summary(every_api, wall, who=who, lined=lined or no_api, reader=self.read)
            self.summaries[who.number] = summary
        return summary

    def join(self, who: Who, summary: Summary, lined: Callable[[int, int], bool]) -> None:
        """Count in a summary that there is already, such as the audit's, which `lined` is for."""
        if self.summaries.get(who.number) is not summary:
            summary.wants, summary.lined, summary.reader = every_api, lined, self.read
            self.summaries[who.number] = summary

    def close(self) -> None:
        for summary in self.summaries.values():
            summary.wants, summary.reader = summary.lined or no_api, None
        self.summaries.clear()

    def gather(self) -> Iterator[None]:
        """Add counts of all connections since the last call to the totals, `CELLS_AT_ONCE` cells a step."""
        self.totals.tick(self.clock())
        for summary in list(self.summaries.values()):
            if summary.waiting or summary.touched:
                summary.fold()
                yield from self.read_cells(summary)
            yield
        self.unnamed.resolve(self.clock())

    def read(self, summary: Summary) -> None:
        """Add the changes of a summary's cells to the totals; other connections may run in between."""
        with run_to_end():
            for _ in self.read_cells(summary):
                yield_now()

    def read_cells(self, summary: Summary) -> Iterator[None]:
        """Add the changes of a summary's cells to the totals, and yield after every `CELLS_AT_ONCE` cells.

        Between two steps other readers may read the same cells, and labels may change. So the numbers that were added
        are in `reported` of each cell, and labels are looked up again for each cell.
        """
        summary.touched = False
        who = summary.who
        assert who is not None, "`summary_for` has named it"
        crowded = len(summary.apis) >= MOST_APIS  # then cells without a client are those of many
        cells: list[ApiCounters | PartitionCounters] = [*summary.apis.values(), *summary.parts.values()]
        for start in range(0, len(cells), CELLS_AT_ONCE):
            now, principal = self.clock(), (who.principal or "") if "principal" in self.whos else ""
            for cell in cells[start : start + CELLS_AT_ONCE]:
                if isinstance(cell, ApiCounters):
                    self.read_api(cell, principal, crowded, now)
                elif self.by_topic or self.by_group:
                    self.read_partition(cell, who, now)
            yield

    def read_api(self, cell: ApiCounters, principal: str, crowded: bool, now: float) -> None:
        key, ending = cell.key[0], cell.key[3]
        by_broker = ending.responder == "broker"
        seconds = max(cell.latency - cell.rule - cell.wait, 0.0) if by_broker else 0.0
        numbers = (
            cell.count, cell.request_bytes + cell.response_bytes, seconds, sum(cell.buckets) if by_broker else 0,
            cell.throttle_seconds, cell.bytes, cell.records,
        )  # fmt: skip
        before = cell.reported
        if numbers == before:
            return
        seconds = max(seconds, before[2])  # a wait may be reported after the exchange
        cell.reported = (*numbers[:2], seconds, *numbers[3:])
        new = [number - old for number, old in zip(cell.reported, before, strict=True)]
        kind = api_class(key)
        for label in self.whos:
            if label == "principal":
                name = principal
            else:
                name = cell.key[2] or (OTHER if crowded and cell.key[2] is None else "")
            lines = WHO_LINES["client" if label == "client_id" else label, kind]
            self.totals.add(label, name, list(zip(lines, new[:5], strict=True)), now)
        if self.by_topic and cell.told and kind in TOPIC_LINES:  # partitions without cells
            self.totals.add("topic", OTHER, list(zip(TOPIC_LINES[kind], new[5:], strict=True)), now)

    def read_partition(self, cell: PartitionCounters, who: Who, now: float) -> None:
        numbers = (cell.count, cell.bytes, cell.records, cell.offset_at, cell.mark_at, 0.0, 0.0)
        before = cell.reported
        if numbers == before:
            return
        cell.reported = numbers
        key, _, _, topic, partition, code, acks, _, _ = cell.key
        if key not in ROWS:
            return
        name = topic_name(topic, who)
        label = OTHER if name is None else label_text(name)
        if self.by_topic:
            lines: list[tuple[LabelLine, float]]
            if code:
                lines = [(("kproxy_topic_errors_total", known_error(code)), numbers[0] - before[0])]
            else:
                sizes = TOPIC_LINES["produce" if key == PRODUCE else "fetch"]
                lines = [(sizes[0], numbers[1] - before[1]), (sizes[1], numbers[2] - before[2])]
            known = name is not None and not code and (acks != 0 or self.is_known(who.cluster, name))
            if isinstance(topic, bytes) and name is None and not code and acks != 0 and who.cluster is not None:
                self.unnamed.add(who.cluster, topic, lines, now)
            else:
                self.totals.add("topic", label, lines, now, known=known)
        lags = self.totals.lags
        if lags is not None and not code and partition is not None and name is not None and who.cluster is not None:
            place = who.cluster, label, partition
            if key == PRODUCE and cell.last_offset >= 0:
                lags.end(place, cell.last_offset + 1, cell.offset_at)
            elif key == FETCH and cell.high_watermark >= 0:
                lags.end(place, cell.high_watermark, cell.mark_at)

    def is_known(self, cluster: str | None, topic: str) -> bool:
        """Return True if a broker has confirmed that the topic exists."""
        picture = self.pictures.get(cluster or "")
        return picture is not None and topic in picture.topics

    # ---- groups

    def take_join(self, seen: ObservedExchange) -> None:
        asked, answered = seen.request_body, seen.response_body
        if asked is None or answered is None or answered["error_code"] or seen.answered_by_rule:
            return
        if seen.key in NEW_HEARTBEATS and asked["member_epoch"] != 0:
            return
        group = asked["group_id"]
        self.totals.add("group", seen.who.broker_group(group) or group, [(JOIN_LINE, 1)], self.clock())

    def take_commit(self, seen: ObservedExchange) -> None:
        asked, answered = seen.request_body, seen.response_body
        if asked is None or answered is None or seen.answered_by_rule:
            return
        parts = partitions_in(seen.key, seen.version, "response", answered)
        stored = {(part.name_or_id, part.number) for part in parts if not part.error_code}
        if not stored:
            return
        group = asked["group_id"]
        group = seen.who.broker_group(group) or group
        now = self.clock()
        self.totals.add("group", group, [(COMMIT_LINE, 1)], now)
        label, lags = label_text(group), self.totals.lags
        if lags is not None and label in self.totals.tables["group"].series:
            self.note_offsets(seen, asked, stored, label, lags)

    def note_offsets(
        self, seen: ObservedExchange, asked: Mapping[str, Any], stored: set[tuple[str | UUID | None, int]], group: str,
        lags: GroupLags,
    ) -> None:  # fmt: skip
        who, at = seen.who, seen.response.last if seen.response is not None else 0.0
        for part in partitions_in(seen.key, seen.version, "request", asked):
            place = part.name_or_id
            if (place, part.number) not in stored or who.cluster is None:
                continue
            topic = topic_name(place.bytes if isinstance(place, UUID) else place or "", who)
            if topic is None and isinstance(place, UUID):
                self.unnamed.add(who.cluster, place.bytes, [], self.clock())  # the next commit has the name, then
            elif topic is not None:
                lags.commit(group, (who.cluster, label_text(topic), part.number), part.fields["committed_offset"], at)


def topic_name(topic: str | bytes, who: Who) -> str | None:
    """Return the broker's name of a topic, given by its client's name or by its id; None if it is not known."""
    name = who.topic_of(str(UUID(bytes=topic))) if isinstance(topic, bytes) else topic
    return None if name is None else who.broker_topic(name) or name


def known_error(code: int) -> str:
    """Return the name of a partition's error, from broker or kproxy; `unknown` for a number that the protocol lacks."""
    code = code - OWN if code >= OWN // 2 else code
    return error_name(code) if code in numbers() else "unknown"


def api_class(key: int | None) -> str:
    """Return the class of an API that clients and principals are counted by."""
    if key == PRODUCE:
        return "produce"
    return "fetch" if key in READS else "group" if key in IN_GROUPS else "other"


def every_api(key: int, version: int) -> bool:
    return True


def no_api(key: int, version: int) -> bool:
    return False
