"""Held frames as YAML: what can be set, in the form in which it is set, and what was changed."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kproxy.base.errors import InputError
from kproxy.cli.tui.frame_fields import as_yaml, changes, values_of
from kproxy.protocol import decode_request
from kproxy.protocol.records import Record, decode, encode_batch, entries
from kproxy.record.live_view.detail import detail_of
from kproxy.session.held_edit import MessageEdit
from tests.support.exchange_factory import exchange

PATH = "topic_data[0].partition_data[0].records"


def held(*batches: bytes) -> tuple[dict[str, Any], bytes]:
    """A held Produce request with these batches, as the API shows it, and its bytes."""
    body = {"acks": -1, "topic_data": [{"name": "orders", "partition_data": [
        {"index": 3, "records": b"".join(batches)}]}]}  # fmt: skip
    seen = exchange("Produce", 9, body, None)
    assert seen.request is not None
    detail = detail_of("17-1", {}, seen, None)
    return {"frame": detail["request"]["client"], "records": detail["records"]}, seen.request.data


def test_all_that_can_be_set_is_there_and_comes_back() -> None:
    """Of records keys, values and headers, counted over all batches; what is no text is hex."""
    first = encode_batch([Record(0, 1, b"k", b"v", (("trace", b"a1"),)), Record(1, 1, None, b"\xff\x00")])
    second = encode_batch([Record(0, 1, "\u202e".encode(), b"hex:00")])
    shown, data = held(first, second)
    values = values_of(shown)

    assert values["topic_data[0].name"] == "orders"
    assert {path.removeprefix(PATH): value for path, value in values.items() if path.startswith(PATH)} == {
        "[0].key": "k", "[0].value": "v", "[0].headers": [{"key": "trace", "value": "a1"}],
        "[1].key": None, "[1].value": "hex:ff00", "[1].headers": [],
        "[2].key": "hex:e280ae", "[2].value": "hex:6865783a3030", "[2].headers": [],
    }  # fmt: skip
    text = as_yaml("x", values)
    assert yaml.safe_load(text) == values
    assert changes(text, values) == []
    everything = [(path, value) for path, value in values.items()]
    assert MessageEdit(data, 0, 9, "request").made(everything) == data


def test_an_edit_is_what_was_changed() -> None:
    """Also an element more of an array, and null; the frame has it then."""
    shown, data = held(encode_batch([Record(0, 1, b"k", b"v")]))
    values = values_of(shown)
    text = as_yaml("x", values).replace("records[0].value: v", "records[0].value: null").replace("acks: -1", "acks: 1")
    text += "topic_data[1].name: bills\n"
    wanted = changes(text, values)

    assert {one["path"]: one["value"] for one in wanted} == {
        "acks": 1, f"{PATH}[0].value": None, "topic_data[1].name": "bills",
    }  # fmt: skip
    made = decode_request(MessageEdit(data, 0, 9, "request").made([(one["path"], one["value"]) for one in wanted])).body
    assert (made["acks"], [one["name"] for one in made["topic_data"]]) == (1, ["orders", "bills"])
    (entry,) = entries(memoryview(made["topic_data"][0]["partition_data"][0]["records"]))
    assert [record.value for record in decode(entry, 1000)] == [None]


@pytest.mark.parametrize("odd", [None, 7, {}, {"frame": 7}, {"frame": {"steps": [7, [], ["a"] * 8]}, "records": 7},
                                 {"frame": {"data": "!", "steps": [[0, 9, 1, "a", "value", "RECORDS", {"bytes": 9}]]},
                                  "records": [7]}])  # fmt: skip
def test_frames_that_are_none_have_no_values(odd: Any) -> None:
    """Whatever a proxy says."""
    assert values_of(odd) == {}


@pytest.mark.parametrize("text", ["[", "- a", "", "a: 1"])
def test_yaml_that_is_no_edit(text: str) -> None:
    """It is refused: fields cannot be taken away."""
    with pytest.raises(InputError):
        changes(text, {"b": 1})
