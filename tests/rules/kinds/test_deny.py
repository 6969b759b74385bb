"""The kind deny: the broker's authorization errors, and lists without what is forbidden."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.table import schema
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 29, 30, 31, 53


def key(api: str) -> int:
    return schema.names()[api]


def denying(line: str) -> Dialogue:
    return Dialogue(f"rules: [{{name: r, kind: deny, {line}}}]")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("kind: deny, match: {api: ApiVersions}", "ApiVersions is never forbidden, it comes before all else"),
        ("kind: deny, match: {api: [Fetch, SaslHandshake]}", "SaslHandshake is never forbidden"),
        ("kind: deny, match: {error: any}", "this is decided before the broker answers"),
        ("kind: deny, error: 0", "expected an error code, got 0 (NONE)"),
        (
            "kind: deny, error: TOPIC_AUTHORIZATION",
            'unknown error "TOPIC_AUTHORIZATION", did you mean "TOPIC_AUTHORIZATION_FAILED"?',
        ),
    ],
)
def test_what_cannot_be_is_refused(mistakes_of: Any, text: str, mistake: str) -> None:
    """With the reason."""
    (line,) = mistakes_of(text)

    assert line.startswith(mistake), line


@pytest.mark.parametrize(
    ("api", "version", "body", "code"),
    [
        ("DeleteTopics", 5, {"topic_names": ["a", "b"]}, TOPIC),
        ("CreateTopics", 7, {"topics": [{"name": "a", "num_partitions": 1, "replication_factor": 1}]}, TOPIC),
        ("JoinGroup", 5, {"group_id": "g"}, GROUP),
        ("ListGroups", 4, {}, GROUP),
        ("DescribeGroups", 5, {"groups": ["g"]}, GROUP),
        ("InitProducerId", 4, {"transactional_id": "x"}, TRANSACTIONAL_ID),
        ("InitProducerId", 4, {"transactional_id": None}, CLUSTER),
        ("EndTxn", 3, {"transactional_id": "x"}, TRANSACTIONAL_ID),
        ("DescribeAcls", 3, {}, CLUSTER),
        ("CreateAcls", 3, {"creations": [{"resource_type": 2, "resource_name": "a"}]}, CLUSTER),
        ("DescribeLogDirs", 4, {"topics": [{"topic": "a", "partitions": [0]}]}, CLUSTER),
        ("ElectLeaders", 2, {"topic_partitions": None}, CLUSTER),
        ("ElectLeaders", 2, {"topic_partitions": [{"topic": "a", "partitions": [0]}]}, CLUSTER),
        ("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": ["x"]}, TRANSACTIONAL_ID),
        ("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]}, GROUP),
        ("CreateDelegationToken", 3, {}, 65),
        ("DescribeConfigs", 4, {"resources": [{"resource_type": 2, "resource_name": "a"}]}, TOPIC),
        ("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": 4, "resource_name": "1"}]}, CLUSTER),
        ("OffsetFetch", 7, {"group_id": "g", "topics": None}, GROUP),
        ("ConsumerGroupHeartbeat", 0, {"group_id": "g"}, GROUP),
    ],
)
def test_an_api_is_forbidden_with_its_own_error(api: str, version: int, body: dict[str, Any], code: int) -> None:
    """The broker never sees it; the error stands where that version has it."""
    talk = denying(f"match: {{api: {api}}}").client(request(key(api), version, 3, **body))
    (answer,) = talk.responses((key(api), version))

    assert talk.to_broker == b""
    assert codes_in(answer.body) == {code}


def codes_in(value: Any) -> set[int]:
    """All error codes in a body that are not 0."""
    if isinstance(value, dict):
        own = {code for name, code in value.items() if name == "error_code" and code}
        return own.union(*map(codes_in, value.values()))
    return set().union(*map(codes_in, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize(("api", "version"), [("ApiVersions", 3), ("SaslHandshake", 1), ("SaslAuthenticate", 2)])
def test_the_beginning_of_a_connection_is_never_forbidden(api: str, version: int) -> None:
    """A client could not learn why."""
    body = {"ApiVersions": {"client_software_name": "x", "client_software_version": "1"}}.get(api, {})
    asked = request(key(api), version, 3, **body)

    assert denying("match: {client_id: tester}").client(asked).to_broker == asked


def test_another_error_can_be_given() -> None:
    """Instead of the API's own."""
    talk = denying("match: {api: DeleteTopics}, error: POLICY_VIOLATION")
    (answer,) = talk.client(request(20, 5, 3, topic_names=["a"])).responses((20, 5))

    assert codes_in(answer.body) == {44}


def test_only_the_topic_is_forbidden() -> None:
    """The rest of a mixed request is the broker's, and the answer has all in the order of the request."""
    talk = denying("match: {topic: secret*}")
    data = [{"name": name, "partition_data": [{"index": 0, "records": None}]} for name in ("a", "secret.b", "c")]
    talk.client(request(0, 9, 1, acks=-1, topic_data=data))
    (seen,) = talk.requests()
    said = [{"name": name, "partition_responses": [{"index": 0}]} for name in ("a", "c")]
    (answer,) = talk.broker(response(0, 9, 1, responses=said)).responses((0, 9))
    found = [(one["name"], one["partition_responses"][0]["error_code"]) for one in answer.body["responses"]]

    assert [topic["name"] for topic in seen.body["topic_data"]] == ["a", "c"]
    assert found == [("a", 0), ("secret.b", TOPIC), ("c", 0)]


def test_of_several_groups_one_is_forbidden() -> None:
    """Its error stands beside it, not beside its topics; the others are answered by the broker."""
    talk = denying("match: {group: g}")
    groups = [{"group_id": name, "topics": [{"name": "t", "partition_indexes": [0]}]} for name in ("g", "h")]
    talk.client(request(9, 8, 1, groups=groups))
    (seen,) = talk.requests()
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 5, "metadata": ""}]}]
    (answer,) = talk.broker(response(9, 8, 1, groups=[{"group_id": "h", "topics": topics}])).responses((9, 8))

    assert [group["group_id"] for group in seen.body["groups"]] == ["h"]
    assert [(one["group_id"], one["error_code"], len(one["topics"])) for one in answer.body["groups"]] == [
        ("g", GROUP, 0), ("h", 0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("version", [1, 9, 12])
def test_lists_of_topics_leave_out_what_is_forbidden(version: int) -> None:
    """Metadata of all topics; the broker is asked for all, and what it says of others stays."""
    talk = denying('match: {topic: "secret*"}, not: {topic: secret.open}')
    asked = request(3, version, 1, topics=None)
    topics = [{"name": name, "is_internal": False, "partitions": []} for name in ("a", "secret.b", "secret.open")]
    talk.client(asked).broker(response(3, version, 1, topics=topics))
    (answer,) = talk.responses((3, version))
    running = talk.rules.live[0]

    assert talk.to_broker == asked
    assert [topic["name"] for topic in answer.body["topics"]] == ["a", "secret.open"]
    assert (running.matched, running.fired, running.applied) == (1, 1, 1)


def test_a_list_without_anything_forbidden_passes_as_it_came() -> None:
    """Byte for byte; applied is not counted."""
    talk = denying("match: {topic: secret}")
    said = response(3, 9, 1, topics=[{"name": "a", "is_internal": False, "partitions": []}])

    assert talk.client(request(3, 9, 1, topics=None)).broker(said).to_client == said
    assert talk.rules.live[0].applied == 0


def test_a_topic_that_is_asked_for_by_name_gets_its_error() -> None:
    """Only "all" leaves it out. The broker says which brokers there are, without which no client believes an answer."""
    talk = denying("match: {topic: secret}").client(request(3, 9, 1, topics=[{"name": "secret"}]))
    (seen,) = talk.requests()
    (answer,) = talk.broker(response(3, 9, 1, brokers=[{"node_id": 1, "host": "h"}])).responses((3, 9))

    assert seen.body["topics"] == []
    assert [broker["host"] for broker in answer.body["brokers"]] == ["h"]
    assert [(topic["name"], topic["error_code"]) for topic in answer.body["topics"]] == [("secret", TOPIC)]


@pytest.mark.parametrize(
    ("match", "api", "version", "asked", "said", "left"),
    [
        ("group: g", "ListGroups", 4, {}, {"groups": [{"group_id": "g"}, {"group_id": "h"}]}, "h"),
        ("transactional_id: x", "ListTransactions", 0, {},
         {"transaction_states": [{"transactional_id": "x"}, {"transactional_id": "y"}]}, "y"),
        ("topic: t", "DescribeLogDirs", 2, {"topics": None},
         {"results": [{"log_dir": "/d", "topics": [
             {"name": "t", "partitions": [{"partition_index": 0}]}, {"name": "u", "partitions": [{}]}]}]}, "u"),
        ("topic: t", "ListPartitionReassignments", 0, {"topics": None},
         {"topics": [{"name": "t", "partitions": [{}]}, {"name": "u", "partitions": [{}]}]}, "u"),
        ("topic: t", "DescribeTopicPartitions", 0, {"topics": []}, {"topics": [{"name": "t"}, {"name": "u"}]}, "u"),
        ("topic: t", "OffsetFetch", 7, {"group_id": "g", "topics": None},
         {"topics": [{"name": "t", "partitions": [{}]}, {"name": "u", "partitions": [{}]}]}, "u"),
        ("topic: t", "OffsetFetch", 8, {"groups": [{"group_id": "g", "topics": None}]},
         {"groups": [{"group_id": "g", "topics": [
             {"name": "t", "partitions": [{}]}, {"name": "u", "partitions": [{}]}]}]}, "u"),
        ("topic: t", "DescribeAcls", 3, {},
         {"resources": [{"resource_type": 2, "resource_name": "t"}, {"resource_type": 2, "resource_name": "u"}]}, "u"),
        ("group: t", "ListConfigResources", 1, {}, {"config_resources": [
            {"resource_type": 32, "resource_name": "t"}, {"resource_type": 2, "resource_name": "u"}]}, "u"),
    ],
)  # fmt: skip
def test_every_kind_of_list_leaves_it_out(
    match: str, api: str, version: int, asked: dict[str, Any], said: dict[str, Any], left: str
) -> None:
    """Groups, transactions, log directories, reassignments, offsets, ACLs, configs."""
    talk = denying(f"match: {{{match}}}")
    frame = request(key(api), version, 1, **asked)
    (answer,) = talk.client(frame).broker(response(key(api), version, 1, **said)).responses((key(api), version))

    assert talk.to_broker == frame
    assert set(names_in(answer.body)) - {"g"} == {left}


def names_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value[name] for name in ("name", "group_id", "transactional_id", "resource_name") if name in value]
        return own + [name for inner in value.values() for name in names_in(inner)]
    return [name for inner in value for name in names_in(inner)] if isinstance(value, list) else []


def test_what_would_change_all_there_is_fails() -> None:
    """An election for all partitions is one for those that are forbidden, too."""
    talk = denying("match: {topic: secret}")
    (answer,) = talk.client(request(43, 2, 1, topic_partitions=None)).responses((43, 2))

    assert (talk.to_broker, answer.body["error_code"]) == (b"", CLUSTER)


def test_a_member_cannot_subscribe_to_what_is_forbidden() -> None:
    """The new group protocol names the topics that it wants in its heartbeat; Kafka 4 looks at them, too."""
    talk = denying("match: {topic: secret}")
    talk.client(request(68, 0, 1, group_id="g", member_epoch=1, subscribed_topic_names=["a", "secret"]))
    good = request(68, 0, 2, group_id="g", member_epoch=1, subscribed_topic_names=["a"])
    talk.client(good).broker(response(68, 0, 2))
    first, second = talk.responses((68, 0), (68, 0))

    assert talk.to_broker == good
    assert (first.body["error_code"], second.body["error_code"]) == (TOPIC, 0)


def test_a_client_that_is_excluded_sees_everything() -> None:
    """`not: {client_id: …}` holds for lists as for all else."""
    talk = denying("match: {topic: secret}, not: {client_id: tester}")
    said = response(3, 9, 1, topics=[{"name": "secret", "is_internal": False, "partitions": []}])

    assert talk.client(request(3, 9, 1, topics=None)).broker(said).to_client == said
    assert talk.rules.live[0].matched == 0


def test_a_topic_that_nobody_can_name_is_not_let_through() -> None:
    """The broker is asked for its name; if it knows none either, the topic is unknown. Lists leave it out."""
    known, nobodys = UUID(int=7), UUID(int=8)
    talk = denying("match: {topic: secret}")
    parts = [{"topic_id": one, "partitions": [{"partition": 0}]} for one in (known, nobodys)]
    talk.client(request(1, 13, 1, session_epoch=-1, topics=parts))
    (own,) = talk.requests()
    talk.broker(response(3, own.version, own.header["correlation_id"], topics=[{"name": "a", "topic_id": known}]))
    said = [{"topic_id": one, "partitions": [{"partition_index": 0}]} for one in (known, nobodys)]
    talk.broker(response(1, 13, 1, responses=said))
    (answer,) = talk.responses((1, 13))
    found = [(one["topic_id"], one["partitions"][0]["error_code"]) for one in answer.body["responses"]]

    assert found == [(known, 0), (nobodys, 100)]
    talk.client(request(9, 10, 2, groups=[{"group_id": "g", "topics": None}]))
    topics = [{"topic_id": one, "partitions": [{}]} for one in (nobodys, known)]
    talk.broker(response(9, 10, 2, groups=[{"group_id": "g", "topics": topics}]))
    _, listed = talk.responses((1, 13), (9, 10))

    assert [topic["topic_id"] for topic in listed.body["groups"][0]["topics"]] == [known]
