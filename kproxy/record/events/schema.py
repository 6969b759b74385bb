"""Every event type and column (CloudEvents 1.0, additive changes only), and their JSON Schema.

Names are the client's. If the broker has another name for a topic or group, a `broker_…` column contains it.

JSON Schema (2020-12) describes the lines of one type: the CloudEvents envelope, with the data of one event type.
Additional properties are allowed everywhere, since columns are added. Columns of the data are optional: an absent
column is null.
"""

from __future__ import annotations

from typing import Any

from .column import Column, EventType, walk_columns

ENVELOPE = (
    Column("specversion", "string", "CloudEvents: 1.0"),
    Column("id", "string", "number of the event in its source, from 1, without gaps"),
    Column("source", "string", "who recorded it: instance/boot/worker; with `id` it is unique"),
    Column("type", "string", "event type with its version"),
    Column("time", "timestamp", "when it happened; of a request, its arrival; of counts, the start of their minute"),
)
"""Columns of the CloudEvents envelope around the data of every event."""

CONNECTION = (
    Column("connection", "long", "number of the client connection in its source"),
    Column("cluster", "string", "name of the cluster in the config"),
    Column("listener", "string", "name of the listener in the config"),
    Column("client_address", "string", "IP address of the client, from the PROXY header if in use"),
    Column("client_port", "int", "the client's port"),
    Column("node", "int", "id of the broker that the connection leads to; absent: a bootstrap connection"),
    Column("broker", "string", "host:port that kproxy connected to"),
    Column("principal", "string", "name authenticated by the broker or kproxy, or of the client certificate"),
    Column("software_name", "string", "the client's library, from ApiVersions 3 on (KIP-511)"),
    Column("software_version", "string", "its version"),
)
"""Columns of every event about a connection: who the client is, and where it is connected."""

CONNECTION_EVENT = EventType(
    "kproxy.connection.v1",
    "A client connection: opened, authenticated, closed",
    (
        Column("action", "string", "open, authentication or close"),
        *CONNECTION,
        Column("client_id", "string", "client id of the last request; of close"),
        Column("tls", "boolean", "the client uses TLS; of open and close"),
        Column("sni", "string", "host name that the client asked for in TLS; of open and close"),
        Column(
            "bound_rules",
            "struct",
            "rules that the connection keeps until it closes, such as prefix and advertise, the first hundred; of open",
            array=True,
            columns=(
                Column("rule", "string", "name"),
                Column("kind", "string", "its kind"),
            ),
        ),
        Column("mechanism", "string", "SASL mechanism; of authentication and close"),
        Column("error", "string", "error name of a failed authentication"),
        Column("cause", "string", "why it closed, one word; of close"),
        Column("message", "string", "why it closed, in words; of close"),
        Column("seconds", "double", "how long it was open; of close", "s"),
        Column("connect_ms", "double", "time until the connection to the broker was open; of close", "ms"),
        Column("requests", "long", "requests of the client; of close", "requests"),
        Column("responses", "long", "responses to it; of close", "responses"),
        Column("unanswered", "long", "requests that were due an answer and got none; of close", "requests"),
        Column("request_bytes", "long", "bytes from the client; of close", "bytes"),
        Column("response_bytes", "long", "bytes to the client; of close", "bytes"),
        Column("unread_frames", "long", "frames that could not be read for the audit; of close", "frames"),
    ),
)

LATENCY_BOUNDS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000)
"""Upper bounds of `latency_buckets`, inclusive; a last bucket takes what is slower. Merged by adding."""

SUMMARY_EVENT = EventType(
    "kproxy.summary.v1",
    "Traffic of one connection in one minute: a line per API, and one per partition of Produce and Fetch",
    (
        *CONNECTION,
        Column("client_id", "string", "client id of the requests"),
        Column("minute", "timestamp", "start of the minute"),
        Column("first", "timestamp", "the first request of them"),
        Column("last", "timestamp", "the last one"),
        Column("api", "string", "name of the API"),
        Column("version", "int", "version of the API"),
        Column("topic", "string", "absent: the line is about the requests of this API as such"),
        Column("broker_topic", "string", "the topic's name at the broker, where it is another"),
        Column("topic_id", "string", "the topic's id, where the protocol gives it"),
        Column("partition", "int", "of lines with a topic; absent there: partitions beyond what is told one by one"),
        Column("outcome", "string", "as of requests; of lines without a topic"),
        Column("responder", "string", "broker, or kproxy, whose rule answered in its place; without a topic"),
        Column("error", "string", "error name, of lines without a topic as of requests; absent: none"),
        Column("errors", "string", "error names in each of the responses, the first 20; of lines without a topic",
               array=True),
        Column("kproxy_errors", "string", "those of `errors` that rules of kproxy made", array=True),
        Column("error_level", "string", "request: `error` is at the top of the response; part: it is further in"),
        Column("error_by", "string", "for an error of a partition: kproxy if a rule caused it; absent: the broker"),
        Column("acks", "int", "of Produce"),
        Column("codec", "string", "of lines with a topic: none, gzip, snappy, lz4 or zstd"),
        Column("idempotent", "boolean", "of Produce lines with a topic: the batches have a producer id"),
        Column("count", "long", "requests; of lines with a topic, requests that were about this partition", "requests"),
        Column("records", "long", "records written or read; of lines with a topic", "records"),
        Column("bytes", "long", "bytes of record batches; of lines with a topic", "bytes"),
        Column("batches", "long", "record batches; of lines with a topic", "batches"),
        Column("last_offset", "long", "offset of the last record written or read; of lines with a topic"),
        Column("high_watermark", "long", "as the broker answered last; of Fetch lines with a topic"),
        Column("empty", "long", "Fetch: requests that brought no bytes for this partition or, without a topic, at all"),
        Column("request_bytes", "long", "of lines without a topic", "bytes"),
        Column("response_bytes", "long", "of lines without a topic", "bytes"),
        Column("latency_ms", "double", "sum of the times from request in to response out; without a topic", "ms"),
        Column("latency_max_ms", "double", "the longest of them", "ms"),
        Column("latency_buckets", "long", "how many took up to 1, 2, 5, 10, 25, 50, 100, 250, 500 ms, 1, 2.5, 5, 10, "
               "30 s, longer", array=True),
        Column("rule_ms", "double", "part of latency_ms: rules held them or frames before them", "ms"),
        Column("wait_ms", "double", "part of latency_ms in kproxy for other causes; the rest is the broker's", "ms"),
        Column("throttle_rule", "string", "rule that throttled all of them; absent: none did"),
        Column("throttled", "long", "responses that reported a throttle_time_ms", "requests"),
        Column("throttle_ms", "long", "sum of the reported throttle_time_ms", "ms"),
        Column("mute_ms", "double", "sum of the mutes of the client's channel by `throttle_rule`", "ms"),
    ),
)  # fmt: skip

MOST_BATCHES = 32
"""Batches, and aborted transactions, that an event lists for each partition."""

BATCH = (
    Column("base_offset", "long", "from its header; for a Fetch, its position in the log"),
    Column("last_delta", "int", "its last offset less its first one"),
    Column("count", "int", "its records; fewer than its offsets where compaction has taken some", "records"),
    Column("attributes", "int", "as its header has them: codec, kind of timestamps, transactional, control"),
    Column("crc", "long", "its checksum, which stays as it is wherever the batch is stored"),
    Column("producer_id", "long", "absent: none"),
    Column("producer_epoch", "int", "absent: none"),
    Column("sequence", "int", "sequence number of its first record; absent: none"),
    Column("marker", "string", "commit or abort, of a control batch; absent also where the inside was not kept"),
)

PARTITION = (
    Column("partition", "int", "number of the partition"),
    Column("error", "string", "error name; absent: none"),
    Column("error_by", "string", "for an error: kproxy if a rule caused it; absent: the broker"),
    Column("records", "long", "records written or read", "records"),
    Column("bytes", "long", "bytes of record batches", "bytes"),
    Column("batches", "int", "record batches", "batches"),
    Column("codec", "string", "none, gzip, snappy, lz4 or zstd; of the first batch"),
    Column("base_offset", "long", "offset of the first record written, or of the first batch read"),
    Column("last_offset", "long", "offset of the last record written or read"),
    Column("fetch_offset", "long", "offset that was asked for"),
    Column("offset", "long", "offset that was found or given: ListOffsets, DeleteRecords, OffsetForLeaderEpoch"),
    Column("high_watermark", "long", "as the broker answered"),
    Column("last_stable_offset", "long", "as the broker answered: transactions that begin before it are over"),
    Column("log_start_offset", "long", "as the broker answered"),
    Column("committed_offset", "long", "offset committed, or found committed"),
    Column("producer_id", "long", "of the first batch; absent: none"),
    Column("producer_epoch", "int", "of the first batch"),
    Column("base_sequence", "int", "of the first batch"),
    Column("attributes", "int", "of the first batch, as its header has them"),
    Column("crc", "long", "of the first batch: its checksum, which stays as it is wherever the batch is stored"),
    Column("batches_detail", "struct", f"each of the first {MOST_BATCHES} batches; absent where there is only one, of "
           "users' records: the columns above tell it", array=True, columns=BATCH),
    Column("aborted", "struct", f"aborted transactions that a Fetch was told, the first {MOST_BATCHES}", array=True,
           columns=(
               Column("producer_id", "long", "transactional producer"),
               Column("first_offset", "long", "where it begins"),
           )),
    Column("leader_epoch", "int", "from the request, or in the response"),
    Column("leader", "int", "node id of the leader: of Metadata, and beside an error that names it (KIP-951)"),
)  # fmt: skip

REQUEST_EVENT = EventType(
    "kproxy.request.v1",
    "One exchange: a request, and its response if there was one",
    (
        *CONNECTION,
        Column("client_id", "string", "from the request's header"),
        Column("correlation_id", "int", "from the request's header"),
        Column("api", "string", "name of the API"),
        Column("api_key", "int", "number of the API"),
        Column("version", "int", "version of the request"),
        Column("depth", "string", "how much of the frames kproxy decoded for its work: none, header, fields, full"),
        Column("outcome", "string", "answered; no_answer_due (acks=0); unanswered; closed (kproxy closed instead)"),
        Column("responder", "string", "broker, or kproxy when a rule answered in its place"),
        Column("request_bytes", "long", "size of the frame, its length field included", "bytes"),
        Column("response_bytes", "long", "size of the frame, its length field included", "bytes"),
        Column("request_in", "timestamp", "the request's first bytes were read"),
        Column("request_out", "timestamp", "its first bytes left for the broker"),
        Column("response_in", "timestamp", "the response's last bytes came from the broker"),
        Column("response_out", "timestamp", "its last bytes were handed to the socket"),
        Column("latency_ms", "double", "request_in to response_out", "ms"),
        Column("broker_ms", "double", "request_out to response_in; absent if kproxy answered", "ms"),
        Column("rule_ms", "double", "part of latency_ms: rules held it or a frame before it", "ms"),
        Column("wait_ms", "double", "part of latency_ms in kproxy for other causes: lookups, memory, its turn", "ms"),
        Column("throttle_ms", "int", "throttle_time_ms of the response: by a quota of the broker, or a rule", "ms"),
        Column("throttle_rule", "string", "rule that throttled it: let it wait for a quota, or muted the channel"),
        Column("mute_ms", "double", "mute of the client's channel after it, by `throttle_rule`", "ms"),
        Column("rules", "string", "names of the rules that fired, in order", array=True),
        Column("error", "string", "error name at the top of the response, otherwise the first one in it; absent: none"),
        Column("errors", "string", "error names in the response, each once, `error` first, at most 20", array=True),
        Column("kproxy_errors", "string", "those of `errors` that rules of kproxy made", array=True),
        Column("error_level", "string", "request: `error` is at the top of the response; part: it is further in"),
        Column("error_message", "string", "first error message in the response"),
        Column("acks", "int", "Produce: 0, 1 or -1 for all"),
        Column("isolation", "int", "Fetch and ListOffsets: 0 read_uncommitted, 1 read_committed"),
        Column("group", "string", "the group, or the first of several"),
        Column("broker_group", "string", "the group's name at the broker, where it is another"),
        Column("member", "string", "member id in the group"),
        Column("instance", "string", "group instance id of a static member"),
        Column("generation", "int", "generation or member epoch"),
        Column("members", "int", "members of the group, where the response lists them"),
        Column("protocol", "string", "JoinGroup: the assignor that was chosen"),
        Column("transactional_id", "string", "the transactional id, or the first of several"),
        Column("producer_id", "long", "of transaction APIs and InitProducerId"),
        Column("producer_epoch", "int", "of transaction APIs and InitProducerId"),
        Column("topics", "struct", "topics that it was about; those beyond the limit are counted in omitted_topics",
               array=True, columns=(
                   Column("topic", "string", "absent: the name of the id is not known"),
                   Column("broker_topic", "string", "the topic's name at the broker, where it is another"),
                   Column("topic_id", "string", "where the protocol gives it"),
                   Column("group", "string", "of requests about several groups or transactional ids: which of them"),
                   Column("error", "string", "error name of the topic; absent: none"),
                   Column("partitions", "struct", "partitions; those beyond the limit count in omitted_partitions",
                          array=True, columns=PARTITION),
               )),
        Column("resources", "struct", "configs, ACLs, groups, users and other things that it was about", array=True,
               columns=(
                   Column("type", "string", "topic, broker, group, transactional_id, cluster, user, …"),
                   Column("name", "string", "its name, by the client"),
                   Column("error", "string", "error name; absent: none"),
                   Column("detail", "string", "requested items: keys of configs, operation of ACLs, …"),
               )),
        Column("omitted_topics", "int", "topics left out of this event", "topics"),
        Column("omitted_partitions", "int", "partitions left out of this event", "partitions"),
        Column("omitted_resources", "int", "resources left out of this event", "resources"),
        Column("total_records", "long", "records of all partitions, those left out included", "records"),
        Column("total_bytes", "long", "bytes of record batches of all partitions", "bytes"),
        Column("decode_error", "string", "why the request or response could not be decoded; it has no fields then"),
    ),
)  # fmt: skip

RULE_EVENT = EventType(
    "kproxy.rule.v1",
    "Rules that were loaded, swapped, rejected, changed or fired",
    (
        Column(
            "action", "string", "loaded, swapped, rejected, removed, changed, expired, or fired (counts of a minute)"
        ),
        Column("change", "string", "what was done, such as disabled or faults disabled; of removed and changed"),
        Column("version", "string", "id of the rule set in force"),
        Column("before", "string", "id of the rule set before"),
        Column("rules", "long", "rules in force", "rules"),
        Column("rule", "string", "name of the rule; of removed, changed, expired and fired"),
        Column("kind", "string", "its kind; of fired"),
        Column("origin", "string", "file, api or test"),
        Column("dry_run", "boolean", "the rule is a dry run"),
        Column("minute", "timestamp", "start of the minute; of fired"),
        Column("matched", "long", "how often its selectors held, in this minute; of fired", "requests"),
        Column("fired", "long", "how often its trigger held as well", "requests"),
        Column("applied", "long", "how often what it changed has gone out", "requests"),
        Column("mistakes", "string", "file:line:column and error; of rejected", array=True),
    ),
)

TOPOLOGY_EVENT = EventType(
    "kproxy.topology.v1",
    "Topology of a cluster: after changes, and every hour",
    (
        Column("cluster", "string", "name of the cluster in the config"),
        Column("cluster_id", "string", "the brokers' own id of it"),
        Column("controller", "int", "node id"),
        Column("nodes", "struct", "brokers", array=True, columns=(
            Column("node", "int", "broker id"),
            Column("host", "string", "as the broker advertises it"),
            Column("port", "int", "as the broker advertises it"),
            Column("rack", "string", "its rack"),
        )),
        Column("topics", "struct", "topics, in the broker's names", array=True, columns=(
            Column("topic", "string", "name"),
            Column("topic_id", "string", "id"),
            Column("internal", "boolean", "belongs to Kafka itself"),
            Column("partitions", "int", "how many", "partitions"),
            Column("leaders", "int", "node id of each partition's leader, -1: none", array=True),
        )),
        Column("part", "int", "a large cluster is told in several events: number of this one, from 0 on"),
        Column("parts", "int", "how many there are"),
    ),
)  # fmt: skip

AUDIT_GAP_EVENT = EventType(
    "kproxy.audit_gap.v1",
    "Events were lost, or could have been, and writing goes on",
    (
        Column("reason", "string", "unclean_end (a file was left behind by a process that was killed) or dropped"),
        Column("file", "string", "name under which the file that was left behind is published"),
        Column("of_source", "string", "source of the events in it"),
        Column("lines", "long", "whole lines that were kept", "events"),
        Column("cut_bytes", "long", "bytes of a torn last line that were cut off", "bytes"),
        Column("first_id", "long", "id of the first event kept, or dropped"),
        Column("last_id", "long", "id of the last event kept, or dropped; of unclean_end, later events may be lost"),
        Column("dropped", "long", "events that could not be written; of dropped", "events"),
        Column("message", "string", "of dropped: destination and reasons; otherwise why the file cannot be read"),
    ),
)

TELEMETRY_EVENT = EventType(
    "kproxy.telemetry.v1",
    "Metrics of one push of a client (KIP-714)",
    (
        *CONNECTION,
        Column("client_id", "string", "from the request's header"),
        Column("client_instance_id", "string", "id of the client, which it keeps until it ends"),
        Column("terminating", "boolean", "the client reports that it ends; absent: it does not"),
        Column("payload_bytes", "long", "as it came", "bytes"),
        Column("unpacked_bytes", "long", "after it was unpacked", "bytes"),
        Column("metrics", "int", "metrics that were taken", "metrics"),
        Column("left_out", "int", "data points that were not: of kinds or values that cannot be added up", "points"),
        *(
            column
            for role in ("producer", "consumer")
            for column in (
                Column(f"{role}_connection_creation_total", "double", "since the last push", "connections"),
                Column(f"{role}_node_request_latency_avg", "double", "mean of all nodes", "ms"),
                Column(f"{role}_node_request_latency_max", "double", "the largest of all nodes", "ms"),
            )
        ),
        Column("producer_produce_throttle_time_avg", "double", "from the client", "ms"),
        Column("producer_produce_throttle_time_max", "double", "from the client", "ms"),
        Column("producer_record_queue_time_avg", "double", "from the client", "ms"),
        Column("producer_record_queue_time_max", "double", "from the client", "ms"),
        Column("consumer_poll_idle_ratio_avg", "double", "part of its time that it spent in poll, 0 to 1"),
        Column("consumer_coordinator_commit_latency_avg", "double", "from the client", "ms"),
        Column("consumer_coordinator_commit_latency_max", "double", "from the client", "ms"),
        Column("consumer_coordinator_assigned_partitions", "double", "from the client", "partitions"),
        Column("consumer_coordinator_rebalance_latency_avg", "double", "from the client", "ms"),
        Column("consumer_coordinator_rebalance_latency_max", "double", "from the client", "ms"),
        Column("consumer_coordinator_rebalance_latency_total", "double", "since the last push", "ms"),
        Column("consumer_fetch_manager_fetch_latency_avg", "double", "from the client", "ms"),
        Column("consumer_fetch_manager_fetch_latency_max", "double", "from the client", "ms"),
    ),
)

EVENT_TYPES = (
    CONNECTION_EVENT,
    SUMMARY_EVENT,
    REQUEST_EVENT,
    RULE_EVENT,
    TOPOLOGY_EVENT,
    AUDIT_GAP_EVENT,
    TELEMETRY_EVENT,
)
"""Declarations of all event types."""

BY_NAME = {event_type.name: event_type for event_type in EVENT_TYPES}


DIALECT = "https://json-schema.org/draft/2020-12/schema"
TIMESTAMP = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"
FORMS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "int": {"type": "integer", "minimum": -(1 << 31), "maximum": (1 << 31) - 1},
    "long": {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 63) - 1},
    "double": {"type": "number"},
    "timestamp": {"type": "string", "format": "date-time", "pattern": TIMESTAMP},
}
CONSTANTS = {"specversion": "1.0", "datacontenttype": "application/json"}


def json_schema(event_type: EventType) -> dict[str, Any]:
    envelope = {column.name: column_schema(column) for column in ENVELOPE}
    envelope["datacontenttype"] = {"type": "string", "description": "CloudEvents: what `data` is"}
    for name, value in CONSTANTS.items():
        envelope[name]["const"] = value
    envelope["type"]["const"] = event_type.name
    envelope["data"] = {"description": event_type.meaning, **struct_schema(event_type.columns)}
    return {
        "$schema": DIALECT,
        "$id": f"urn:{event_type.name.replace('.', ':')}",
        "title": event_type.name,
        "description": event_type.meaning,
        "type": "object",
        "properties": envelope,
        "required": [*(column.name for column in ENVELOPE), "data"],
    }


def struct_schema(columns: tuple[Column, ...]) -> dict[str, Any]:
    return {"type": "object", "properties": {column.name: column_schema(column) for column in columns}}


def column_schema(column: Column) -> dict[str, Any]:
    """Return the schema of a value, with its meaning, its unit, and the version of kproxy that introduced it."""
    element = struct_schema(column.columns) if column.type == "struct" else dict(FORMS[column.type])
    annotations = {"description": column.meaning, "x-unit": column.unit, "x-since": column.since}
    form = {"type": "array", "items": element} if column.array else element
    return form | {name: text for name, text in annotations.items() if text}


def markdown_table(columns: EventType | tuple[Column, ...]) -> str:
    """Return the columns as a table in Markdown, those of structs below them under their paths."""
    lines = ["| column | type | unit | since | description |", "|---|---|---|---|---|"]
    for path, column in walk_columns(columns.columns if isinstance(columns, EventType) else columns):
        kind = f"{column.type}[]" if column.array else column.type
        meaning = column.meaning.replace("|", "&#124;")
        lines.append(f"| `{path}` | {kind} | {column.unit} | {column.since} | {meaning} |")
    return "\n".join(lines) + "\n"
