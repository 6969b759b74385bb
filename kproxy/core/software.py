"""Which library the client is, as it says itself in ApiVersions from version 3 on (KIP-511)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

LONGEST: Final = 250
"""Characters of a name or a version; Kafka has no limit, and these become text in logs."""
_LEGAL = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What brokers accept; all else they answer with INVALID_REQUEST."""


@dataclass(frozen=True, slots=True)
class Software:
    """`str` of it is what selectors compare: `apache-kafka-java/3.9.1`."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"


def software(body: Mapping[str, Any]) -> Software | None:
    """What an ApiVersions request says; None for versions that say nothing, and for names that no broker accepts."""
    name, version = body.get("client_software_name"), body.get("client_software_version")
    if not isinstance(name, str) or not isinstance(version, str) or max(len(name), len(version)) > LONGEST:
        return None
    return Software(name, version) if _LEGAL.fullmatch(name) and _LEGAL.fullmatch(version) else None


def is_valid(body: Mapping[str, Any]) -> bool:
    """Whether brokers accept what an ApiVersions request says of its library; those that say nothing they do."""
    said = body.get("client_software_name"), body.get("client_software_version")
    return all(one is None or _LEGAL.fullmatch(one) is not None for one in said)
