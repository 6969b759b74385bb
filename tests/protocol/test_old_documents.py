"""The two oldest documents: other names, the same bytes.

Both grammars are flattened to a sequence of primitive types, in which an array is a nested sequence and a struct is
nothing but its fields, and compared with the layouts of the table, flattened in the same way.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import Slot, Struct

SEEDS = Path(__file__).parent / "seeds"
Flat = tuple[Any, ...]
SAME_BYTES = {
    "BOOLEAN": "bool",
    "NULLABLE_STRING": "string",
    "NULLABLE_BYTES": "bytes",
    "RECORDS": "bytes",
}


def flat(struct: Struct) -> Flat:
    return tuple(part for slot in struct.slots for part in flat_slot(slot))


def flat_slot(slot: Slot) -> Flat:
    inner = flat(slot.struct) if slot.struct is not None else ("bytes" if slot.type == "records" else slot.type,)
    return (inner,) if slot.array else inner


def word(text: str) -> tuple[str, bool]:
    """A name, and whether it stands for an array."""
    inside = re.fullmatch(r"\[(\w+)\]|ARRAY\((\w+)\)", text)
    return (inside[1] or inside[2], True) if inside else (text, False)


def primitive(name: str) -> Flat:
    return (SAME_BYTES.get(name, name.lower()),)


# The 2.1 list: in a block, the names of a line are defined by the lines after it, each with its own before the next.


def in_order(sequence: str, lines: list[tuple[str, str]]) -> Flat:
    """The flattened sequence, whose definitions are taken from the front of `lines`."""
    parts: list[Any] = []
    for text in sequence.split():
        name, array = word(text)
        inner = in_order(lines.pop(0)[1], lines) if lines and lines[0][0] == name else primitive(name)
        parts += [inner] if array else inner
    return tuple(parts)


def kafka_2_1() -> dict[tuple[int, int, str], Flat]:
    """(key, version, direction) → flattened grammar."""
    found = {}
    text = (SEEDS / "kafka-2.1-messages.txt").read_text()
    for part in re.split(r"API \(Key: (?=\d)", text)[1:]:
        key = int(part.partition(")")[0])
        for block in part.split("\n\n"):
            title = re.match(r"\s*(\w+) (Request|Response) \(Version: (\d+)\) =>(.*)", block)
            if title:
                lines = re.findall(r"^ +(\w+) =>(.*)", block, re.MULTILINE)
                found[key, int(title[3]), title[2].lower()] = in_order(title[4], lines)
                assert lines == [], title[0]
    return found


def test_the_2_1_list_has_the_layouts_of_the_table() -> None:
    """Each of its 106 grammars has the bytes of the table's layout of the same key and version."""
    found = kafka_2_1()

    differing = [block for block, parts in found.items() if parts != flat(layout.body(*block))]

    assert len(found) == 106
    assert differing == []


# The 0.8 document: one block a message; names that a block does not define are defined by another.

MESSAGES_0_8 = {
    "TopicMetadataRequest": (3, 0, "request"),
    "MetadataResponse": (3, 0, "response"),
    "ProduceRequest": (0, 0, "request"),
    "ProduceResponse": (0, 0, "response"),
    "FetchRequest": (1, 0, "request"),
    "FetchResponse": (1, 0, "response"),
    "OffsetRequest": (2, 0, "request"),
    "OffsetResponse": (2, 0, "response"),
    "ConsumerMetadataRequest": (10, 0, "request"),
    "ConsumerMetadataResponse": (10, 0, "response"),
    "OffsetCommitRequestV0": (8, 0, "request"),
    "OffsetCommitRequestV1": (8, 1, "request"),
    "OffsetCommitRequestV2": (8, 2, "request"),
    "OffsetCommitResponse": (8, 0, "response"),
    "OffsetFetchRequest": (9, 0, "request"),
    "OffsetFetchResponse": (9, 0, "response"),
}


def resolved(sequence: str, names: dict[str, str]) -> Flat:
    """The flattened sequence, whose definitions are looked up in `names`."""
    parts: list[Any] = []
    for text in sequence.split():
        name, array = word(text)
        inner = resolved(names[name], names) if name in names else primitive(name)
        parts += [inner] if array else inner
    return tuple(parts)


def kafka_0_8() -> dict[str, dict[str, str]]:
    """Block name → its definitions, with those of all other blocks behind them."""
    text = (SEEDS / "kafka-0.8-grammar.txt").read_text()
    text = text.replace("][", "] [").replace("MessageSetSize MessageSet\n", "SizedMessageSet\n")
    blocks = [re.findall(r"(\w+) => (.*)", block) for block in text.split("\n\n")]
    everything = {name: meaning for block in blocks for name, meaning in block}
    sized = {"SizedMessageSet": "bytes"}  # an int32 and as many bytes of messages, which is what bytes are
    return {block[0][0]: everything | dict(block) | sized for block in blocks}


@pytest.mark.parametrize("name", MESSAGES_0_8)
def test_the_0_8_document_has_the_layouts_of_the_table(name: str) -> None:
    """Each message of the document has the bytes of the table's first versions."""
    names = kafka_0_8()[name]

    assert resolved(names[name], names) == flat(layout.body(*MESSAGES_0_8[name]))


def test_the_0_8_headers_are_request_header_1_and_response_header_0() -> None:
    """A request has a client id, which was never written as null then; a response has a correlation id only."""
    names = kafka_0_8()

    request = resolved(names["Request"]["Request"].replace(" RequestMessage", ""), names["Request"])
    response = resolved(names["Response"]["Response"].replace(" ResponseMessage", ""), names["Response"])

    assert request == flat(layout.header("request", 1))
    assert response == flat(layout.header("response", 0))


def test_the_0_8_document_names_no_message_that_is_not_compared() -> None:
    """Every block that is a request or a response has its entry above."""
    frames = {"RequestOrResponse", "Request", "Response", "MessageSet", "Message"}

    assert set(kafka_0_8()) - frames == set(MESSAGES_0_8)
