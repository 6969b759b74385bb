"""Facts about a connection that are known when it opens, and do not change while it lives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about one connection. `client_address` is an IP without port, `sni` the name that a TLS client asked for,
    `certificate` the subject of its certificate (`subject_name`) or what the listener's rules of principals make of it,
    `node` the broker that it connects to (a bootstrap connection: none); None where there is none."""

    listener: str
    cluster: str
    client_address: str
    sni: str | None = None
    certificate: str | None = None
    node: int | None = None


_SHORT = {
    "commonName": "CN", "organizationalUnitName": "OU", "organizationName": "O", "localityName": "L",
    "stateOrProvinceName": "ST", "countryName": "C", "domainComponent": "DC", "userId": "UID",
}  # fmt: skip
_SPECIAL = re.compile(r'([,+"\\<>;]|^[# ]| $)')


def subject_name(peer_certificate: Mapping[str, Any] | None) -> str | None:
    """Return `CN=etl,OU=data,O=Example`, as Kafka's own principals have it (RFC 4514: most specific first), from what
    `ssl.SSLObject.getpeercert()` gives; None without a certificate."""
    if not peer_certificate:
        return None
    return ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in relative)
        for relative in reversed(peer_certificate.get("subject", ()))
    )


def _escaped(value: str) -> str:
    return _SPECIAL.sub(r"\\\1", value)
