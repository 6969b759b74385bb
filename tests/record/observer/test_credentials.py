"""No credential is ever kept: by the structure of each message of the table, not by a search for text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.framing import framed
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.record.exchange import Depth, Form
from kproxy.record.observer.credentials import (
    BODIES,
    KEPT_VALUES,
    REQUEST,
    RESPONSE,
    VALUES,
    secret_paths,
    take_out,
    withheld_body,
)
from kproxy.tools.rehearse.dialogue import request
from tests.record.observer.watching import Watching
from tests.support.frames import message
from tests.support.line_count import LineCount
from tests.support.random_values import random_struct

DIRECTIONS = (REQUEST, RESPONSE)
SECRET_KINDS = {"sasl_token", "secret", "config_value", "request_frame", "response_frame"}
SUSPICIOUS = re.compile(r"password|hmac|salt|secret|auth_bytes|credential|private|token$|unaligned_records")
HARMLESS = {"credential_infos"}
"""Of DescribeUserScramCredentials: mechanisms and their iterations."""
MARK = "hunter2"


def secret_slots(struct: Struct) -> Iterator[Slot]:
    """Fields whose kind or name smells of a secret."""
    for slot in struct.everywhere():
        if slot.kind in SECRET_KINDS or (SUSPICIOUS.search(slot.name) and slot.name not in HARMLESS):
            yield slot


def messages() -> Iterator[tuple[int, int, str]]:
    for api in schema.apis():
        for version in api.versions:
            for direction in DIRECTIONS:
                yield api.key, version, direction


def test_every_secret_of_the_table_is_covered() -> None:
    """A field that smells of a secret is in a body that is withheld, or among the values that are taken out."""
    found = set()
    for key, version, direction in messages():
        for slot in secret_slots(layout.body(key, version, direction)):
            path = slot.path.removesuffix("[]")
            covered = bool(withheld_body(key, version, direction)) or path in secret_paths(key, direction)
            assert covered, f"{schema.load(key).name} {direction} v{version} {slot.path}"
            found.add((key, direction))
    assert found == {*BODIES, *VALUES}, "a list entry without a secret behind it"


def test_new_versions_and_unknown_apis_are_withheld() -> None:
    """Where the structure is not known, nobody can tell where credentials are."""
    assert withheld_body(33, 99, REQUEST) == "config values in a version that is not known"
    assert withheld_body(36, 99, REQUEST) == "SASL token"
    assert withheld_body(4242, 0, RESPONSE) == "an API that is not known"
    assert withheld_body(3, 99, RESPONSE) == ""


def marked(struct: Struct, body: dict[str, Any]) -> None:
    """Put the mark into all values that smell of a secret, and into strings and bytes of bodies that are withheld."""
    for slot in struct.all_slots:
        value = body.get(slot.name)
        if slot.struct is not None:
            for one in value if isinstance(value, list) else [value]:
                if one is not None:
                    marked(slot.struct, one)
        elif not slot.array and (slot.kind in SECRET_KINDS or SUSPICIOUS.search(slot.name)):
            body[slot.name] = MARK if slot.type == "string" else MARK.encode()


def secret_frame(key: int, version: int, direction: str, seed: int) -> bytes:
    """A frame without its length that has the mark wherever a secret stands; null where it is empty by chance."""
    struct = layout.body(key, version, direction)
    body = random_struct(struct, Random(seed))
    marked(struct, body)
    return message(key, version, direction, body)


@pytest.mark.parametrize(("key", "direction"), sorted({*BODIES, *VALUES}))
def test_marked_secrets_are_nowhere(key: int, direction: str) -> None:
    """A mark in the place of each secret is in no frame that is handed out, at any depth and however it is cut."""
    seen_mark = 0
    for version in schema.load(key).versions:
        for seed in range(6):
            frame = secret_frame(key, version, direction, seed)
            seen_mark += MARK.encode() in frame
            kept, why = take_out(frame, key, version, direction)
            assert MARK.encode() not in kept
            assert why or MARK.encode() not in frame
            for depth in set(Depth) - {Depth.RAW}:  # RAW keeps credentials, see test_tape_alone_keeps_credentials
                for chunk, most in ((0, 1 << 20), (1, 1 << 20), (11, 40), (len(frame), 40)):
                    handed = watched(frame, key, version, direction, Watching(depth, most=most), chunk)
                    assert MARK.encode() not in handed, f"v{version} seed {seed} {depth} in chunks of {chunk}"
    assert seen_mark


def watched(frame: bytes, key: int, version: int, direction: str, watching: Watching, chunk: int) -> bytes:
    """All bytes of both frames that are handed out."""
    if direction == REQUEST:
        watching.client(framed(frame), chunk)
    else:
        watching.client(request(key, version, 7)).broker(framed(frame), chunk)
    watching.end()
    frames = [one for seen in watching.seen for one in (seen.request, seen.response) if one is not None]
    return b"".join(one.data + one.sketch for one in frames)


def test_a_broken_config_frame_is_withheld() -> None:
    """Where the values cannot be found, the body is not kept."""
    frame = secret_frame(33, 2, REQUEST, 1)

    for broken in (frame[:-1], frame + b"hunter2", frame[:20] + b"\xff" + frame[21:]):
        kept, why = take_out(broken, 33, 2, REQUEST)
        assert MARK.encode() not in kept
        assert why == "config values in a body that cannot be read"
        assert len(kept) < 25


def test_names_of_configs_remain() -> None:
    """Which configs were changed can be read; each byte of their values is a star, so the frame has its length."""
    resources = [
        {"resource_type": 2, "resource_name": "orders", "configs": [{"name": "retention.ms", "value": MARK}]}
    ]  # fmt: skip
    for version in (0, 1, 2):
        frame = request(33, version, 7, resources=resources)
        (seen,) = Watching(Depth.SKETCH).client(frame).end().seen
        assert seen.request is not None and seen.request_body is not None
        (config,) = seen.request_body["resources"][0]["configs"]

        assert ("retention.ms", "*******") == (config["name"], config["value"])
        assert ("config values", Form.WHOLE) == (seen.request.withheld, seen.request.form)
        assert len(seen.request.data) == len(frame) - 4


KEPT = {
    "cleanup.policy": "compact,delete", "log.cleanup.policy": "delete", "unclean.leader.election.enable": "true",
    "min.insync.replicas": "2", "retention.ms": "-1", "retention.bytes": "1073741824", "log.retention.ms": "604800000",
    "log.retention.minutes": "5", "log.retention.hours": "168", "log.retention.bytes": "-1",
    "delete.retention.ms": "86400000", "log.cleaner.delete.retention.ms": "1", "compression.type": "zstd",
    "message.timestamp.type": "LogAppendTime", "log.message.timestamp.type": "CreateTime",
}  # fmt: skip
OTHER_VALUES = (MARK, f"delete,{MARK}", "compact,delete,compact", "9" * 20, "true ", "truefalse", "-", "compact\n")


def values_after(key: int, direction: str, version: int, configs: dict[str, str], kind: int = 2) -> dict[str, str]:
    """Return the values of configs in a frame after removal; in DescribeConfigs those of synonyms must be the same."""
    listed = [{"name": name, "value": value} for name, value in configs.items()]
    if (key, direction) == (32, RESPONSE) and version:
        listed = [one | {"synonyms": [one]} for one in listed]
    many = {19: "topics", 32: "results"}.get(key, "resources")
    about: dict[str, Any] = {"name": "t"} if key == 19 else {"resource_type": kind, "resource_name": "t"}
    frame = message(key, version, direction, {many: [{**about, "configs": listed}]})
    kept, why = take_out(frame, key, version, direction)
    assert len(kept) == len(frame)
    read = decode_request(kept) if direction == REQUEST else decode_response(kept, key, version)
    found = {one["name"]: one["value"] for one in read.body[many][0]["configs"]}
    for one in read.body[many][0]["configs"]:
        for synonym in one.get("synonyms") or ():
            assert synonym["value"] == one["value"]
    assert (why == "config values") == (found != configs)
    return found


@pytest.mark.parametrize(
    ("key", "direction"), [(19, REQUEST), (19, RESPONSE), (32, RESPONSE), (33, REQUEST), (44, REQUEST)]
)
def test_value_of_a_listed_config_stays_if_it_matches(key: int, direction: str) -> None:
    """Values of topics' configs that verification needs stay; any other value of such a config does not."""
    assert KEPT.keys() == {name.decode() for name in KEPT_VALUES}
    versions = schema.load(key).versions
    for version in (one for one in versions if (key, direction) != (19, RESPONSE) or one >= 5):
        assert values_after(key, direction, version, KEPT) == KEPT
        for other in OTHER_VALUES:
            changed = values_after(key, direction, version, dict.fromkeys(KEPT, other))
            assert set(changed.values()) == {"*" * len(other)}
        near = {f"{name}{more}": value for name, value in KEPT.items() for more in (" ", "2")}
        near |= {name.upper(): value for name, value in KEPT.items()}
        changed = values_after(key, direction, version, near)
        assert all(set(value) == {"*"} for value in changed.values())


@pytest.mark.parametrize(
    ("key", "direction", "kinds"), [(32, RESPONSE, {2, 4}), (33, REQUEST, {2}), (44, REQUEST, {2})]
)
def test_value_of_another_resource_is_removed(key: int, direction: str, kinds: set[int]) -> None:
    """Of clients, groups, loggers and client quotas no value stays."""
    for kind in (0, 1, 2, 4, 8, 16, 32, -1):
        values = values_after(key, direction, 2 if key == 33 else 1, {"retention.ms": "1000"}, kind)
        assert (values == {"retention.ms": "1000"}) == (kind in kinds), kind


def test_the_header_of_a_withheld_frame_remains() -> None:
    """Of a SASL token the header is kept, and why the rest is not."""
    for version in (0, 2):
        (seen,) = (
            Watching(Depth.FULL).client(request(36, version, 7, auth_bytes=b"\0alice\0" + MARK.encode())).end().seen
        )
        assert seen.request is not None

        assert ("tester", "SASL token", Form.HEAD) == (seen.client_id, seen.request.withheld, seen.request.form)
        assert seen.request.data.endswith(b"tester" + b"\0" * (version == 2))
        assert seen.request_body is None


def test_many_config_values_are_taken_out_in_steps() -> None:
    configs = [{"name": f"n{number}", "value": "secret"} for number in range(20_000)]
    resource = {"resource_type": 2, "resource_name": "t", "configs": configs}
    frame = message(33, 2, "request", {"resources": [resource]})
    take_out(frame, 33, 2, "request")
    with LineCount() as count:
        data, _ = take_out(frame, 33, 2, "request")
    assert b"secret" not in data
    assert count.longest <= 20_000 < count.total
