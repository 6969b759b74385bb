"""Table of the faults that a real cluster shows, read from `faults.yaml`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from kproxy.explore.model import ExchangePlace, FaultClass, KnownFault
from kproxy.wire.table.schema import read_yaml

TABLE = files("kproxy.explore") / "faults.yaml"
DEFAULT_CLASSES: tuple[FaultClass, ...] = ("transient", "fatal")
MOMENTS = {"before": "before the work", "after": "after the work", "crash": "and the client dies"}
BREAKING = frozenset(("disconnect", "drop"))  # kinds of rules that break the connection


class FaultTable:
    """Table of faults by API. `weights`: danger of faults by API, multiplied with the weight of each fault."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        everywhere = document["connections"]
        self.weights: Mapping[str, float] = {
            api: entry["weight"] for api, entry in document.items() if api != "connections"
        }
        self.by_api: Mapping[str, tuple[KnownFault, ...]] = {
            api: tuple(faults_of(api, document[api], everywhere)) for api in self.weights
        }

    @property
    def all(self) -> Iterator[KnownFault]:
        for faults in self.by_api.values():
            yield from faults

    def at(
        self, place: ExchangePlace, classes: Collection[FaultClass] = DEFAULT_CLASSES, on_mock: bool = False
    ) -> Iterator[KnownFault]:
        """Yield the faults of these classes that can occur at a place; `on_mock` excludes those with `unlike_mock`."""
        for fault in self.by_api.get(place.api, ()):
            if fault.kind_of in classes and suits(fault, place) and not (on_mock and is_unlike_mock(fault, place)):
                yield fault

    def untried(self, place: ExchangePlace, classes: Collection[FaultClass]) -> Iterator[KnownFault]:
        """Yield the faults that `on_mock` excludes."""
        for fault in self.by_api.get(place.api, ()):
            if fault.kind_of in classes and suits(fault, place) and is_unlike_mock(fault, place):
                yield fault


@cache
def fault_table() -> FaultTable:
    return FaultTable(read_yaml(TABLE))


def faults_of(api: str, entry: Mapping[str, Any], everywhere: Mapping[str, Any]) -> Iterator[KnownFault]:
    for name in entry.get("connections", ()):
        unlike = entry.get("unlike_mock", {}).get(name, "")
        yield known_fault(api, name, {"unlike_mock": unlike, **everywhere[name]})
    for fault in entry.get("faults", ()):
        error = fault.get("error")
        if error is None:
            yield known_fault(api, fault["name"], fault)
            continue
        moment = fault["moment"]
        rule = {"kind": "error", "error": error, "at": "request" if moment == "before" else "response"}
        name = f"{error}, {MOMENTS[moment]}"
        yield known_fault(api, name, {**fault, "rule": rule, "text": name})


def known_fault(api: str, name: str, entry: Mapping[str, Any]) -> KnownFault:
    return KnownFault(
        f"{api}: {name}",
        api,
        entry["class"],
        entry["moment"],
        entry["weight"],
        entry["text"],
        dict(entry["rule"]),
        entry["source"],
        frozenset(entry.get("needs", ())),
        frozenset(entry.get("without", ())),
        entry.get("unlike_mock", ""),
        entry.get("goes_on", True),
    )


def suits(fault: KnownFault, place: ExchangePlace) -> bool:
    return fault.needs <= place.traits and fault.without.isdisjoint(place.traits)


def is_unlike_mock(fault: KnownFault, place: ExchangePlace) -> bool:
    return fault.unlike_mock == "always" or fault.unlike_mock in place.traits


def breaks_connection(fault: KnownFault) -> bool:
    return fault.rule.get("kind") in BREAKING
