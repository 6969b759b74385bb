"""The table's notation, and what `apis()` gives."""

from __future__ import annotations

import pytest

from kproxy.protocol import apis
from kproxy.protocol.table import api_keys, schema
from kproxy.protocol.table.schema import Versions, names, parse_field, paths


def test_versions_are_a_sequence() -> None:
    """Versions are counted, indexed and searched like a list, whatever ranges they are written as."""
    versions = Versions.parse("0-2,5,8-9")

    assert list(versions) == [0, 1, 2, 5, 8, 9]
    assert (len(versions), versions[0], versions[3], versions[-1]) == (6, 0, 5, 9)
    assert 5 in versions and 6 not in versions
    assert str(versions) == "0-2,5,8-9"
    assert not Versions.parse("none")
    with pytest.raises(IndexError, match="6"):
        versions[6]


def test_every_file_of_the_table_says_what_its_name_says() -> None:
    """A file's number is its key; names and aliases lead to one key each."""
    assert [api.key for api in apis()] == list(paths())
    assert all(api.versions[0] >= 0 and api.request is not None for api in apis())
    assert names()["Produce"] == 0
    assert names()["GroupCoordinator"] == names()["FindCoordinator"] == 10
    assert len({api.name for api in apis()}) == len(apis())


@pytest.mark.parametrize("line", ["a strin 0+", "a struct 0+", "a int8 0+ nul 0+", {"a int8 0+": ["b int8 0+"]}])
def test_a_line_that_cannot_be_read_is_named(line: object) -> None:
    """A mistake in the table stops it from loading, with the line in the message."""
    with pytest.raises(ValueError, match="a "):
        parse_field(line)


def test_constants_of_api_keys_are_called_as_in_the_table() -> None:
    """Each constant stands for the API whose name it has."""
    keys = {name: key for name, key in vars(api_keys).items() if isinstance(key, int)}

    assert {name.replace("_", "") for name in keys} == {schema.load(key).name.upper() for key in keys.values()}
    assert all(schema.load(key).name.upper() == name.replace("_", "") for name, key in keys.items())
    assert schema.keys_of("Produce Fetch") == {api_keys.PRODUCE, api_keys.FETCH}
    with pytest.raises(KeyError):
        schema.keys_of("Prodcue")
