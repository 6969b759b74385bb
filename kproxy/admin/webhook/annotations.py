"""Annotations of a pod that configure its sidecar, parsed into `SidecarOptions`.

All begin with `kproxy.io/`. Unknown names and invalid values are refused: a pod without its sidecar would bypass its
rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kproxy.base.terminal import in_line
from kproxy.rules.values.model import found, unknown
from kproxy.rules.values.source import Hints, counted

DOMAIN = "kproxy.io/"
INJECT = DOMAIN + "inject"
STATUS = DOMAIN + "status"  # Set by the webhook itself in a pod that has got its sidecar
MOST_ITEMS = 32  # Items of one annotation, such as secrets
MOST_SHOWN = 100  # Characters of a name from a pod that a message repeats
MOST_COUNTED = 1000  # Mistakes of one pod that are counted
MOST_HINTS = 20  # Unknown names of one pod that receive a suggestion
MOST_PORT = 65_535

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_FOLDER = re.compile(r"[a-z0-9]([-a-z0-9]{0,46}[a-z0-9])?")  # a volume's name, which it ends, has 63 characters
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,252}")
_SECRET_KEY = re.compile(r"([a-z0-9][-a-z0-9.]{0,252})/([-._a-zA-Z0-9]{1,253})")
_QUANTITY = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
RESOURCES = frozenset(("cpu", "memory", "ephemeral-storage"))
OWN_VARIABLES = frozenset(("POD_NAME",))


@dataclass(frozen=True, slots=True)
class SidecarOptions:
    """Options of the sidecar of one pod: those that the webhook was started with, changed by the pod's annotations.

    `secrets`: name of a Secret by its folder in /etc/kproxy-secrets. `secret_env`: Secret and key by variable.
    `files`: size of a volume for the audit's files and captures. `ports`: (first, last) of those that are kproxy's.
    """

    image: str
    config_map: str = "kproxy-sidecar"
    native: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    files: str | None = None
    requests: Mapping[str, str] = field(default_factory=lambda: {"cpu": "50m", "memory": "96Mi"})
    limits: Mapping[str, str] = field(default_factory=lambda: {"memory": "512Mi"})
    ports: tuple[tuple[int, int], ...] = ((9092, 9189), (9190, 9190))


def shown(value: object) -> str:
    """Return a pod's value for a message: text quoted, in one line and shortened; other values by type."""
    if not isinstance(value, str):
        return found(value)
    text = in_line(value[: MOST_SHOWN + 1])
    return f'"{text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"}"'


def short(name: str, most: int = MOST_SHOWN) -> str:
    """Return the start of a pod's name in one line, for a message."""
    return in_line(name[:most])[:most]


def read_truth(text: str) -> bool:
    """Parse "true" or "false". Raises ValueError."""
    if text not in ("true", "false"):
        raise ValueError(f'expected "true" or "false", got {shown(text)}')
    return text == "true"


def check_name(text: str) -> str:
    """Return a name of a ConfigMap or Secret. Raises ValueError."""
    if not _NAME.fullmatch(text):
        raise ValueError(f"expected a name of small letters, digits, - and ., got {shown(text)}")
    return text


def check_quantity(text: str) -> str:
    """Return a quantity of Kubernetes, such as 512Mi. Raises ValueError."""
    if not _QUANTITY.fullmatch(text) or not re.search("[1-9]", text):
        raise ValueError(f"expected a quantity such as 512Mi or 50m, got {shown(text)}")
    return text


def read_pairs(text: str, what: str) -> dict[str, str]:
    """Return `NAME=VALUE,NAME=VALUE` as a mapping; `what` describes the form in messages. Raises ValueError."""
    items = text.split(",", MOST_ITEMS)
    if len(items) > MOST_ITEMS:
        raise ValueError(f"at most {MOST_ITEMS} items are taken")
    pairs: dict[str, str] = {}
    for item in items:
        name, equals, value = item.strip().partition("=")
        if not (name and equals and value):
            raise ValueError(f"expected {what}, got {shown(item)}")
        if name in pairs:
            raise ValueError(f"duplicate {shown(name)}")
        pairs[name] = value
    return pairs


def read_secrets(text: str) -> dict[str, str]:
    """Return Secrets by folder. Raises ValueError."""
    pairs = read_pairs(text, "FOLDER=SECRET")
    for folder, secret in pairs.items():
        if not _FOLDER.fullmatch(folder):
            raise ValueError(f"expected a folder of up to 48 small letters, digits and -, got {shown(folder)}")
        check_name(secret)
    return pairs


def read_secret_env(text: str) -> dict[str, tuple[str, str]]:
    """Return (secret, key) by environment variable. Raises ValueError."""
    places: dict[str, tuple[str, str]] = {}
    for variable, place in read_pairs(text, "VARIABLE=SECRET/KEY").items():
        parts = _SECRET_KEY.fullmatch(place)
        if not _VARIABLE.fullmatch(variable) or parts is None:
            raise ValueError(f"expected VARIABLE=SECRET/KEY, got {shown(f'{variable}={place}')}")
        if variable in OWN_VARIABLES:
            raise ValueError(f"{variable} is set by the webhook itself")
        places[variable] = check_name(parts[1]), parts[2]
    return places


def read_resources(text: str) -> dict[str, str]:
    """Parse `cpu=50m,memory=96Mi`. Raises ValueError."""
    pairs = read_pairs(text, "RESOURCE=QUANTITY")
    for name, quantity in pairs.items():
        if name not in RESOURCES:
            raise ValueError(unknown("resource", short(name), sorted(RESOURCES)))
        check_quantity(quantity)
    return pairs


def read_ports(text: str) -> tuple[tuple[int, int], ...]:
    """Parse `9092,9093-9189` as (first, last) pairs. Raises ValueError."""
    ranges: list[tuple[int, int]] = []
    items = text.split(",", MOST_ITEMS)
    if len(items) > MOST_ITEMS:
        raise ValueError(f"at most {MOST_ITEMS} items are taken")
    for item in items:
        parts = _PORTS.fullmatch(item.strip())
        first = int(parts[1]) if parts else 0
        last = int(parts[2] or first) if parts else 0
        if not 1 <= first <= last <= MOST_PORT:
            raise ValueError(f"expected a port from 1 to {MOST_PORT} or FIRST-LAST, got {shown(item)}")
        ranges.append((first, last))
    return tuple(ranges)


ANNOTATIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "native": ("native", read_truth),
    "config-map": ("config_map", check_name),
    "secrets": ("secrets", read_secrets),
    "secret-env": ("secret_env", read_secret_env),
    "files": ("files", check_quantity),
    "requests": ("requests", read_resources),
    "limits": ("limits", read_resources),
    "ports": ("ports", read_ports),
}
"""By the name behind `kproxy.io/`: the option that it sets, and its reader, which raises ValueError."""


def own_annotations(annotations: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in annotations.items() if name.startswith(DOMAIN)}


def read_options(own: Mapping[str, Any], defaults: SidecarOptions) -> tuple[bool, SidecarOptions, list[str]]:
    """Return whether to inject the sidecar, its options, and all mistakes, as `metadata.annotations[…]: message`."""
    wanted, options, mistakes = False, defaults, list[str]()
    with counted(Hints(MOST_HINTS)):
        for name, text in own.items():
            known = ANNOTATIONS.get(name.removeprefix(DOMAIN))
            try:
                if not isinstance(text, str):
                    raise ValueError(f"expected text, got {found(text)}")
                if name == INJECT:
                    wanted = read_truth(text)
                elif known is not None:
                    options = replace(options, **{known[0]: known[1](text)})
                elif name != STATUS:
                    raise ValueError(
                        unknown("annotation", short(name), [INJECT, *(DOMAIN + one for one in ANNOTATIONS)])
                    )
            except ValueError as error:
                mistakes.append(f"metadata.annotations[{shown(name)}]: {error}")
                if len(mistakes) == MOST_COUNTED:
                    break
    return wanted, options, mistakes
