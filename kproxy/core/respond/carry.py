"""Places for errors in the responses of an API's versions, for checks when rules load."""

from __future__ import annotations

from typing import Literal

from kproxy.rules.select.selected import spans
from kproxy.wire.table import schema
from kproxy.wire.table.shapes import shape

Where = Literal["top", "entity"]
"""At the top of the response, or at each entity. An API that asks about one thing has the code of that at the top."""


def can_carry(key: int, version: int, level: Where) -> bool:
    """Return True if the response of this API and version has an error code there. KeyError for a version that the
    table lacks."""
    return why_not(key, version, level) is None


def why_not(key: int, version: int, level: Where) -> str | None:
    """Return the reason why a response cannot have an error code there; None if it can."""
    form = shape(key, version)
    name = f"{form.api.name} v{version}"
    if level == "entity" and form.request:
        if form.carries:
            return None
        return f"a response of {name} has no error code for each {form.request[-1].keys[0][0]}{elsewhere(key)}"
    if form.code is not None:
        return None
    return f"a response of {name} has no error code at its top{elsewhere(key)}"


def fails_all(key: int, version: int, code: int) -> bool:
    """Return True if brokers say this error at the top only, though entities have codes of their own: it fails all of
    them.

    Lost fetch sessions, errors of the coordinator: a client would not understand them elsewhere.
    """
    form = shape(key, version)
    return code in form.outer and form.code is not None and not any(level.code for level in form.response[:-1])


def elsewhere(key: int) -> str:
    """Return `; versions 3-5 have one at the top`, for example, or an empty text if no version has one."""
    api = schema.load(key)
    tops = [version for version in api.versions if shape(key, version).code is not None]
    each = [version for version in api.versions if shape(key, version).carries]
    words = [
        f"{said} have one {where}"
        for said, where in ((spans(tops), "at the top"), (spans(each), "for each entity"))
        if said
    ]
    return f"; versions {', '.join(words)}" if words else ""
