"""The protocol's error codes, by number and by name, from `errors.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from .schema import read_yaml

TABLE = files("kproxy.protocol") / "errors.yaml"


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """Error of the protocol: its number on the wire, its name, whether a client may try again, and what it means."""

    code: int
    name: str
    retriable: bool
    means: str


@cache
def all_codes() -> tuple[ErrorCode, ...]:
    """Return every error of the table, by number."""
    return tuple(ErrorCode(**entry) for entry in read_yaml(TABLE))


@cache
def numbers() -> Mapping[int, ErrorCode]:
    return MappingProxyType({error.code: error for error in all_codes()})


@cache
def names() -> Mapping[str, ErrorCode]:
    return MappingProxyType({error.name: error for error in all_codes()})


def by_name(name: str) -> ErrorCode:
    """Return the error of this name, as the guide writes it: `UNKNOWN_TOPIC_OR_PARTITION`. Raises KeyError."""
    return names()[name]


def error_name(code: int) -> str:
    """Return the name of an error code, or the number as text if the table lacks it: brokers choose codes."""
    known = numbers().get(code)
    return str(code) if known is None else known.name
