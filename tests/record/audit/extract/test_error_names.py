"""Error codes of a response, wherever they stand."""

from __future__ import annotations

from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.errors import error_name
from kproxy.record.audit.request_event import SILENT, ErrorCodes, error_fields
from kproxy.record.observer.response_errors import MOST_CODES, in_order

SETS_CONFIGS = {"CreateTopics", "AlterConfigs", "IncrementalAlterConfigs"}


def errors(api: str, version: int, body: dict[str, object]) -> ErrorCodes:
    found = ErrorCodes()
    found.collect(error_fields(schema.names()[api], version), body)
    return found


def names(api: str, version: int, body: dict[str, object]) -> list[str]:
    return [error_name(code) for code in in_order(0, errors(api, version, body).codes).codes]


def test_codes_in_wire_order_each_once() -> None:
    """Of partitions and of topics; zero is none."""
    topics = [
        {"error_code": 0, "partitions": [{"error_code": 5}, {"error_code": 0}, {"error_code": 9}]},
        {"error_code": 3, "partitions": [{"error_code": 5}]},
    ]
    assert names("Metadata", 9, {"topics": topics}) == [
        "LEADER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION",
    ]  # fmt: skip


def test_the_first_words_count() -> None:
    """Empty ones are passed over, and those about single records never looked at."""
    partitions = [
        {"error_message": "", "record_errors": [{"batch_index_error_message": "secret"}]},
        {"error_message": "first"},
        {"error_message": "second"},
    ]
    assert errors("Produce", 9, {"responses": [{"partition_responses": partitions}]}).text == "first"


def test_unknown_codes_are_bounded() -> None:
    """A number stands for a code that the table lacks; there is an end to them."""
    members = [{"error_code": code} for code in range(1000, 1100)]
    found = names("LeaveGroup", 5, {"members": members})
    assert found == [str(code) for code in range(1000, 1000 + MOST_CODES)]


def test_words_of_apis_that_set_configs_are_not_told() -> None:
    """Every API whose request carries values of configs for which the response has words is silent, and no other."""
    found = set()
    for key in schema.paths():
        api = schema.load(key)
        version = api.versions[-1]
        request, response = (list(layout.body(key, version, one).everywhere()) for one in ("request", "response"))
        values = [slot for slot in request if slot.kind == "config_value"]
        if values and any(slot.kind == "error_text" and slot.name == "error_message" for slot in response):
            found.add(api.name)
            assert (key in SILENT) == (api.name in SETS_CONFIGS)
    assert found - {"StreamsGroupHeartbeat"} == SETS_CONFIGS
    assert {schema.load(key).name for key in SILENT} == SETS_CONFIGS
