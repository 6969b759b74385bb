"""How entities lie in requests and responses: the table against the layouts of every API and version."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kproxy.protocol.table import layout, schema, shapes
from kproxy.protocol.table.schema import Api
from kproxy.protocol.table.shapes import Level, shape


def in_every_version(holds: Callable[[Api, int], None]) -> Callable[[Api], None]:
    """A test of an API that looks at all its versions."""

    @pytest.mark.parametrize("api", schema.apis(), ids=str)
    def test(api: Api) -> None:
        for version in api.versions:
            holds(api, version)

    test.__doc__ = holds.__doc__
    return test


@in_every_version
def test_every_error_code_is_somebodys(api: Api, version: int) -> None:
    """Each error code of a response is that of the whole, that of a level, or an exception with its reason."""
    form = shape(api.key, version)
    response = layout.body(api.key, version, "response")
    owned = {form.code} | {f"{level.path}.{level.code}" for level in form.response}
    codes = {slot.path for slot in response.everywhere() if slot.kind == "error_code"}

    assert codes <= owned | set(form.others)
    assert not owned & set(form.others)
    assert all(form.others.values())


@in_every_version
def test_every_path_is_there(api: Api, version: int) -> None:
    """Every array has what identifies its elements; requests and responses have their roles in common."""
    form = shape(api.key, version)
    for direction, levels in (("request", form.request), ("response", form.response), ("response", form.lists)):
        slots = {slot.path: slot for slot in layout.body(api.key, version, direction).everywhere()}
        for level in levels:
            names = [f"{level.path.rpartition('.')[0]}.{array}[]".lstrip(".") for array in level.arrays]

            assert all(slots[name].array for name in names)
            assert level.keys or form.positional
            assert all(
                field == "*" or {f"{level.path}.{field}", f"{level.path}.{field}[]"} & set(slots)
                for _, field in level.keys
            )
    asked = {role for level in form.request for role, _ in level.keys}
    for level in form.response:
        assert {role for role, _ in level.keys} <= asked, level.path


@in_every_version
def test_names_in_requests_are_roles(api: Api, version: int) -> None:
    """A topic, group or transactional id outside of what `NOT_ASKED` lists is a role of its level, or of the top."""
    form = shape(api.key, version)
    paths = {path_of(level, field) for level in form.request for _, field in level.keys}
    paths |= {f"{array}[].{field}" for level in form.request for array in level.arrays for _, field in level.keys}
    paths |= {field for _, field in form.top}
    kinds = {"topic_name": "topic", "topic_id": "topic_id", "group_id": "group", "transactional_id": "transactional_id"}
    for slot in layout.body(api.key, version, "request").everywhere():
        if slot.kind in kinds and not any(slot.path.startswith(start) for start in NOT_ASKED.get(api.name, ())):
            assert slot.path in paths, slot.path


NOT_ASKED = {
    "Fetch": ("forgotten_topics_data",),  # leave a session
    "ShareFetch": ("forgotten_topics_data",),
    "ConsumerGroupHeartbeat": ("subscribed_topic_names", "topic_partitions"),  # said of the member, asked of the group
    "ShareGroupHeartbeat": ("subscribed_topic_names",),
    "StreamsGroupHeartbeat": ("topology",),
    "StreamsGroupTopologyDescriptionUpdate": ("topology_description",),
    "UpdateMetadata": ("ungrouped_partition_states", "topic_states"),  # told, not asked; one code answers all
    "DescribeTopicPartitions": ("cursor",),  # where the answer goes on
}


def path_of(level: Level, field: str) -> str:
    return level.path if field == "*" else f"{level.path}.{field}"


@in_every_version
def test_what_failed_elements_have(api: Api, version: int) -> None:
    """Names under `blank` and `echo` are fields of the response, in some version; `whole` and `all` are known words."""
    form = shape(api.key, version)
    every = {name for v in api.versions for name in names(api, v)}

    assert set(form.blank) | set(form.echo) <= every
    assert form.whole in shapes.WHOLE
    assert form.all in shapes.ALL
    assert form.whole != "each" or form.carries
    assert form.whole != "first" or form.response[0].code is not None
    assert form.whole != "both" or form.code is not None


def names(api: Api, version: int) -> set[str]:
    return {slot.name for slot in layout.body(api.key, version, "response").everywhere()}


def test_every_entry_is_of_an_api() -> None:
    """Names in the table are those of APIs, and their versions cover each exactly once."""
    for name, entries in shapes.table().items():
        if name == "default":
            continue
        versions = schema.load(schema.names()[name]).versions
        for version in versions:
            written = [one for one in entries if version in schema.Versions.parse(one.get("versions", "0+"))]

            assert len(written) == 1, (name, version)


def test_asking_for_all() -> None:
    """Metadata v0 asks for all topics with an empty array, later versions with null (KIP-4)."""
    first, later = shape(3, 0), shape(3, 12)

    assert first.asks_all([]) and first.asks_all(None)
    assert (False, True) == (later.asks_all([]), later.asks_all(None))


@pytest.mark.parametrize("text", ["topics", "topics[topic=name", "a / b[c]", "[topic]"])
def test_what_is_no_level(text: str) -> None:
    """A level without its keys' brackets is a mistake of the table, said so."""
    with pytest.raises(ValueError, match=r"expected array\[role=field"):
        list(shapes.parse_levels(text))
