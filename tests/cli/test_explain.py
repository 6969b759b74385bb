"""`kproxy explain`: what rules make of an API or a frame, and why."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kproxy.cli import main
from kproxy.rules.kinds import KINDS
from kproxy.tools.rehearse.dialogue import request

RULES = """\
rules:
  - name: second write
    kind: error
    match: {api: Produce, topic: orders}
    when: {nth: 2}
    error: NOT_LEADER_OR_FOLLOWER
  - {name: slow, kind: delay, delay: 200ms, match: {client_id: "etl-*"}}
  - {name: watched, kind: drop, match: {api: Produce}, mode: dry_run}
  - {name: names, kind: rename_topic, topics: {orders: prod.orders}}
  - {name: old, kind: limit_versions, apis: {Produce: 0-8}, match: {listener: old}}
"""
PRODUCE, HEARTBEAT, METADATA = 0, 12, 3


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RULES)
    return tmp_path / "r.yaml"


def explain(*words: str, data: bytes | str = "") -> Result:
    return CliRunner().invoke(main, ["explain", *words], input=data)


def write(topic: str = "orders") -> bytes:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": b"r" * 70}]}]
    return request(PRODUCE, 9, 1, "etl-1", acks=-1, topic_data=data)


def test_what_is_not_known_leaves_rules_open(rules: Path) -> None:
    """Each rule has its word, its place and its reasons; those that are never about the API are counted."""
    result = explain("r.yaml", "Produce", "9")

    assert result.exit_code == 0
    assert result.output == """\
Produce 9
  request   full: held until it is whole, and decoded
  response  header: its header is read, the rest streams on, if a rule has fired for the request; else fields: held \
until it is whole, and gone through for names and addresses

  depends   second write
            error, r.yaml:2:5
            if its topic is orders

  depends   slow
            delay, r.yaml:7:5
            if its client id is etl-*

  dry run   watched
            drop, r.yaml:8:5
            acts on the response

  acts      names
            rename_topic, r.yaml:9:5
            changes names in requests and in responses

  depends   old
            limit_versions, r.yaml:10:5
            if its listener is old
            allows versions 0-8: a request in this one closes the connection
""".replace("header: its header is read, the rest streams on, if a rule has fired for the request; else fields",
            "fields")  # fmt: skip


def test_what_is_said_decides(rules: Path) -> None:
    """The turn of a trigger, the selector that fails, the names on the brokers, versions that are stopped."""
    said = explain("r.yaml", "Produce", "9", "--topic", "orders", "--client-id", "x", "--listener", "old").output

    assert "not now   second write" in said
    assert "it is not its turn: when {nth: [2]}, and this is request 1 that it is about" in said
    assert "no        slow" in said and "client id: it is x, the rule wants etl-*" in said
    assert "topic orders is prod.orders on the brokers" in said
    assert 'stopped: the connection is closed, Produce 9: the rule "old" allows 0-8' in said


def test_the_nth_request_is_another(rules: Path) -> None:
    """With --nth the trigger has seen those before it."""
    said = explain("r.yaml", "Produce", "9", "--topic", "orders", "--nth", "2").output

    assert "acts      second write" in said
    assert "answers NOT_LEADER_OR_FOLLOWER (6) in the broker's place, for topic orders partition 0" in said


def test_frames_are_explained_in_order(rules: Path) -> None:
    """Hex, a file or standard input; the second one meets the trigger, and what comes of each is shown."""
    frames = "\n".join(one.hex() for one in (write(), write()))
    (rules.parent / "frames.hex").write_text(frames)
    said = explain("r.yaml", "-", "--listener", "new", data=frames).output
    first, second = said.split("\n\nProduce 9, ")

    assert explain("r.yaml", "frames.hex", "--listener", "new").output == said
    assert explain("r.yaml", write().hex(), "--listener", "new").output == first + "\n"
    assert "the request waits for 0.2 s" in first
    assert 'topic_data[0].name: "orders" → "prod.orders"' in first
    assert "acts      second write" in second
    assert "the broker gets nothing" in second
    assert "the client gets a Produce 9 response of kproxy's own" in second


def test_what_becomes_of_a_frame_may_depend_on_the_connection(rules: Path) -> None:
    """Then nothing is said of it."""
    assert "what becomes of it depends on what is said above" in explain("r.yaml", write().hex()).output


def test_a_config_is_taken_for_its_rules(rules: Path) -> None:
    """Those that it names."""
    rules.with_name("c.yaml").write_text(
        'clusters: {m: {bootstrap: ["b:1"]}}\n'
        'listeners: [{name: old, bind: "127.0.0.1:1", cluster: m}]\nrules: [r.yaml]\n'
    )

    assert "second write" in explain("c.yaml", "Produce").output


def test_several_apis_and_rules_that_are_never_about_one(rules: Path) -> None:
    """An API each, in its newest version unless one is given; --all shows all rules."""
    said = explain("r.yaml", "Heartbeat", "4", "Metadata").output

    assert said.startswith("Heartbeat 4\n  request   head") and "\nMetadata 13\n" in said
    assert "4 rules are never about it" in said
    everything = explain("r.yaml", "Heartbeat", "4", "--all").output
    assert "it is Heartbeat 4, the rule wants Produce" in everything
    assert "Heartbeat 4 carries no such names" in everything
    assert "never about it" not in everything


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("r.yaml", "Prodce"), "no API is called 'Prodce', did you mean Produce?"),
        (("r.yaml", "Produce", "99"), "Produce has versions"),
        (("none.yaml", "Produce"), "does not exist"),
        (("r.yaml", "Produce", "--acks", "2"), "expected acks 0, 1 or all, got 2"),
        (("r.yaml", "Produce", "--error", "NOT_LEADER"), 'unknown error "NOT_LEADER", did you mean'),
        (("r.yaml", "Produce", "--partition", "x"), "expected a whole number, got x"),
        (("r.yaml", "00" * 20, "--topic", "x"), "--topic is already set by the frame"),
    ],
)
def test_wrong_usage_is_exit_code_2(rules: Path, words: tuple[str, ...], message: str) -> None:
    result = explain(*words)

    assert result.exit_code == 2
    assert message in result.output


def test_frames_that_cannot_be_read_and_rules_with_mistakes_are_exit_code_1(rules: Path) -> None:
    """What can be explained is."""
    result = explain("r.yaml", "-", data=f"{write()[:-4].hex()}\n{write().hex()}")
    assert result.exit_code == 1
    assert "frame 1: " in result.output and "second write" in result.output
    assert explain("r.yaml", "-").exit_code == 1
    rules.write_text("rules: [{name: x}]")
    assert explain("r.yaml", "Produce").exit_code == 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_explained(kind: str, rules: Path) -> None:
    """For each API, whatever the kind makes of it: one word, and a reason."""
    rules.write_text("rules:\n" + KINDS[kind].example)
    apis = ("Produce", "Fetch", "Metadata", "JoinGroup", "CreateTopics")
    result = explain("r.yaml", "--all", *apis, "--topic", "orders", "--group", "g", "--client-id", "app")

    assert result.exit_code == 0, result.output
    assert "goes wrong" not in result.output
    words = [line.split()[0] for line in result.output.splitlines() if line.startswith("  ") and line[2] != " "]
    assert set(words) <= {"request", "response", "acts", "depends", "not", "dry", "no", "never", "the"}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("kind: refuse", "is about a connection when it opens, whatever is in its frames"),
        ("kind: bandwidth, rate: 1kB/s", "is about how the bytes of the connection flow, whatever is in its frames"),
        ("kind: quota, requests: 1/s", "lets this request pass as it is"),
        ("kind: delay, delay: 2s", "the request waits for 2 s"),
        ("kind: delay, delay: 2s, when: {probability: 0.3}", "by chance: 0.3"),
        ("kind: delay, delay: 2s, when: {hold: true}", "the request waits until it is resumed"),
        ("kind: delay, delay: 2s, when: {after: 1m}", "it is not its turn: when {after: 60.0}"),
        ("kind: drop, what: request", "the request is lost, nothing more comes on the connection"),
        ("kind: drop", "acts on the response"),
        ("kind: disconnect, close_with: rst", "the connection is reset in place of the request"),
        ("kind: error, error: 6, match: {error: any}", "if its error is any"),
        ("kind: deny, match: {api: Produce}", "answers TOPIC_AUTHORIZATION_FAILED (29) in the broker's place"),
        ("kind: python, call: 'operator:add'", "calls operator:add"),
        ("kind: advertise, host: k", "brokers in the response have the addresses k, ports after its own"),
        ("kind: prefix, prefix: t.", "topic orders is t.orders on the brokers"),
    ],
)
def test_what_each_sort_of_rule_would_do(rule: str, said: str, rules: Path) -> None:
    """In words of the rule's own."""
    rules.write_text(f"rules: [{{name: r, {rule}}}]")

    assert said in explain("r.yaml", "Produce", "10", "--topic", "orders", "--client-id", "x").output


@pytest.mark.parametrize(
    ("rule", "request_", "said"),
    [
        ("kind: rebalance", "Heartbeat 4 --group g", "depends generation_id, member_id"),
        ("kind: rebalance", "ConsumerGroupHeartbeat 1 --group g", "depends member_epoch"),
        ("kind: fence_producer", "InitProducerId 4 --transactional-id t", "depends producer_id"),
        ("kind: drop_records, at: produce", "Produce 9 --topic orders --partition 1", "depends records"),
        ("kind: drop_records, at: produce", "Produce 9", "depends topic_data"),
        ("kind: bad_assignment, defect: swap", "SyncGroup 5 --group g", "depends assignments"),
        ("kind: set, match: {api: Fetch}, fields: {max_bytes: 7}, at: request", "Fetch 12", "depends max_bytes"),
        ("kind: fence_producer", "EndTxn 3 --transactional-id t", "acts"),
        ("kind: drop_commit", "OffsetCommit 8 --group g", "acts"),
        ("kind: unknown_tag, at: request", "Fetch 12", "acts"),
    ],
)
def test_what_looks_at_the_body_depends_on_it(rule: str, request_: str, said: str, rules: Path) -> None:
    """Without a frame nobody knows what stands in fields that no option gives."""
    rules.write_text(f"rules: [{{name: r, {rule}}}]")
    result = explain("r.yaml", *request_.split())

    word, _, fields = said.partition(" ")
    assert f"  {word:8}  r\n" in result.output
    assert (f"looks at {fields} of the request, which a frame would tell" in result.output) == bool(fields)


def test_a_frame_tells_what_a_rule_looks_at(rules: Path) -> None:
    """It is as it is, and the rule acts or lets it pass."""
    rules.write_text("rules: [{name: r, kind: rebalance}]")
    beat = request(HEARTBEAT, 4, 1, "app", group_id="g", generation_id=3, member_id="m")

    assert "answers REBALANCE_IN_PROGRESS (27) in the broker's place" in explain("r.yaml", "-", data=beat.hex()).output


RECORD_RULES = """rules:
  - {name: reject, kind: error, error: 44, match: {api: Produce, records: value.c == DE and not header.replay}}
  - {name: mark, kind: set_record, at: produce, value: x, match: {topic: orders, records: key == k}}
  - {name: read, kind: error, error: 44, match: {api: Fetch, topic: orders, records: timestamp > 2020-01-01}}
"""


def test_record_decides_conditions(rules: Path) -> None:
    """With the reason and the cost class of each condition."""
    (rules.parent / "c.yaml").write_text(RECORD_RULES)
    given = ("c.yaml", "--record", "-", "--key", "k", "--topic", "orders")
    said = explain(*given, data='{"c": "DE"}').output
    other = explain(*given, "--header", "replay=1", data='{"c": "DE"}').output
    fetched = explain("c.yaml", "Fetch", *given[1:], data="text").output

    assert "acts      reject" in said and "acts      mark" in said and "names 1 record" in said
    assert (
        'one of its records matches value.c == DE and not header.replay (decodes keys or values of batches with "DE")'
        in said
    )
    assert "no        reject" in other and "none of its records matches" in other
    assert "acts      read" in fetched and "(reads positions of records)" in fetched
    assert "if one of its records matches" in explain("c.yaml", "Produce").output


def test_unreadable_record_matches_strict_rules_only(rules: Path) -> None:
    (rules.parent / "c.yaml").write_text(
        "rules:\n"
        "  - {name: open, kind: error, error: 44, match: {records: value.c == DE}}\n"
        "  - {name: strict, kind: error, error: 44, on_unreadable: reject, match: {records: value.c == DE}}\n"
    )
    said = explain("c.yaml", "--record", "-", "--topic", "orders", data='{"c": ').output
    assert "no        open" in said and "acts      strict" in said


def test_record_without_an_api_or_with_a_frame_is_a_usage_error(rules: Path) -> None:
    assert "expected an API or a frame, got none" in explain("r.yaml").output
    assert "got a frame" in explain("r.yaml", write().hex(), "--record", "r.yaml").output
