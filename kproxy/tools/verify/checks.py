"""Definitions of the checks, from `checks.yaml`: claims, required data, and doubts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal

from kproxy.protocol.table.schema import read_yaml

from .finding import FindingLevel

TABLE = files("kproxy.tools.verify") / "checks.yaml"
CheckDetail = Literal["fields", "headers", "records"]


@dataclass(frozen=True, slots=True)
class CheckDefinition:
    """Entry of checks.yaml, which describes the fields."""

    name: str
    level: FindingLevel
    definition: str
    detail: CheckDetail
    apis: tuple[str, ...]
    doubts: tuple[str, ...] = ()
    silent: str = ""
    events: str = ""
    fails: FindingLevel = "proved"
    claim: str = ""
    assumes: str = ""

    @property
    def not_proved(self) -> str:
        """Other causes of a finding; empty if it is always proved."""
        return "; ".join(doubt_text(doubt) for doubt in self.doubts)


@cache
def table() -> Mapping[str, Any]:
    read: Mapping[str, Any] = read_yaml(TABLE)
    return read


@cache
def checks() -> Mapping[str, CheckDefinition]:
    found = {}
    for name, entry in table()["checks"].items():
        apis, doubts = tuple(entry["apis"]), tuple(entry.get("doubts", ()))
        found[name] = CheckDefinition(
            name, entry["level"], entry["definition"], entry["detail"], apis, doubts,
            **{key: entry[key] for key in ("silent", "events", "fails", "claim", "assumes") if key in entry},
        )  # fmt: skip
    return MappingProxyType(found)


def unknown_text(doubt: str) -> str:
    """Reason why a check is undecided if all its findings have this doubt; empty otherwise."""
    text: str = table()["unknown"].get(doubt, "")
    return text


def doubt_text(doubt: str) -> str:
    text: str = table()["doubts"][doubt]
    return text
