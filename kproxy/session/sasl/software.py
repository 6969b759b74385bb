"""Client library, as the client names it in ApiVersions from version 3 on (KIP-511)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

LONGEST: Final = 250
"""Characters of a name or a version; Kafka has no limit, and these become text in logs."""
_LEGAL = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Names that brokers accept; all others they answer with INVALID_REQUEST."""


@dataclass(frozen=True, slots=True)
class Software:
    """Name and version of a client's library. Selectors compare its `str`: `apache-kafka-java/3.9.1`."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"


def software(body: Mapping[str, Any]) -> Software | None:
    """Return the library that an ApiVersions request names; None for versions without it, and for names that no broker
    accepts."""
    name, version = body.get("client_software_name"), body.get("client_software_version")
    if not isinstance(name, str) or not isinstance(version, str) or max(len(name), len(version)) > LONGEST:
        return None
    return Software(name, version) if _LEGAL.fullmatch(name) and _LEGAL.fullmatch(version) else None


def is_valid(body: Mapping[str, Any]) -> bool:
    """Return True if brokers accept an ApiVersions request's name of the library, or if it has none."""
    names = body.get("client_software_name"), body.get("client_software_version")
    return all(one is None or _LEGAL.fullmatch(one) is not None for one in names)
