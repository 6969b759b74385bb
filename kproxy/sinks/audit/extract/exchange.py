"""Columns that come from the bodies of an exchange, put together for one API and version."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from kproxy.rules.entity import coordinator
from kproxy.watch.error_places import in_order
from kproxy.watch.seen import Seen
from kproxy.wire import layout, schema
from kproxy.wire.shapes import Level, Shape, shape

from ..text import plain
from .error_names import Found, error_columns, places
from .fields import REQUEST, RESPONSE, present, put
from .resources import Things
from .sides import side_of
from .subscriptions import HEARTBEATS, add_assignment, add_subscription
from .topics import Table

Body = Mapping[str, Any]

NAMES = ("group", "transactional_id", "member")
"""Roles that are columns: of the body, or of the first group or transaction in it."""

MEMBERS_IN = frozenset((15, 69, 77, 89))
"""APIs that describe groups with their members."""
JOIN_GROUP = 11


class Exchange:
    """Extractor of the columns of one API and version. Raises KeyError for an API that the table lacks."""

    def __init__(self, key: int, version: int) -> None:
        self.form: Shape = shape(key, version)
        self.key = key
        self.asked = side_of(self.form.request, answered=False)
        self.answered = side_of(self.form.lists, answered=True)
        self.things = Things(self.form)
        self.places = places(key, version)
        self.request_columns = present(REQUEST, layout.body(key, version, "request"), key)
        self.response_columns = present(RESPONSE, layout.body(key, version, "response"), key)
        self.of_failed = tuple(one for one in self.response_columns if one[0] == "throttle_ms")
        self.first = self.first_level()
        self.first_columns = present(REQUEST, self.first.struct) if self.first is not None else ()

    def first_level(self) -> Level | None:
        """Return the request's first level if it is one of groups, transactions or members."""
        for level in self.form.request[:1]:
            if {role for role, _ in level.keys} & {*NAMES, "coordinator_key"}:
                return level
        return None

    def columns(self, request: Body | None, response: Body | None, seen: Seen, most: int) -> dict[str, Any]:
        """Return the columns of an exchange; those of a body that is None are missing."""
        who = seen.who
        whole = None if response is None else response.get(self.form.code, 0) if self.form.code else 0
        data: dict[str, Any] = {}
        if response is not None:
            self.put_errors(data, response, whole or 0, seen)
        if request is not None:
            self.put_asked(data, request)
        if response is not None:
            self.put_answered(data, response, whole or 0)
        if "group" in data:
            broker_group = plain(who.broker_group(data["group"]))
            if broker_group is not None:
                data["broker_group"] = broker_group
        self.put_topics(data, request, response, whole, seen, most)
        if request is not None:
            data |= self.things.tell(request, response, whole, most)
        return data

    def put_errors(self, data: dict[str, Any], response: Body, whole: int, seen: Seen) -> None:
        found = Found()
        found.look(self.places, response)
        data |= error_columns(in_order(whole, found.codes), seen)
        text = plain(found.text)
        if text is not None:
            data["error_message"] = text

    def put_asked(self, data: dict[str, Any], request: Body) -> None:
        roles = {role: request[field] for role, field in self.form.top}
        put(data, self.request_columns, request)
        if self.first is not None:
            for element in self.first.elements(request)[:1]:
                roles = {**self.first.roles(element), **roles}
                if isinstance(element, dict):
                    put(data, self.first_columns, element)
        if "coordinator_key" in roles:
            roles |= coordinator(roles["coordinator_key"], roles.get("key_type", 0))
        for name in NAMES:
            text = plain(roles.get(name))
            if text is not None:
                data[name] = text

    def put_answered(self, data: dict[str, Any], response: Body, whole: int) -> None:
        """Set the columns of a response; a failed one only tells its errors and how long the client is to wait."""
        put(data, self.of_failed if whole else self.response_columns, response)
        members = None
        if self.key == JOIN_GROUP:
            members = response["members"]  # the leader of the group gets them
        elif self.key in MEMBERS_IN and len(response["groups"] or ()) == 1:
            members = response["groups"][0]["members"]
        if members:
            data["members"] = len(members)

    def put_topics(
        self, data: dict[str, Any], asked: Body | None, answered: Body | None, whole: int | None, seen: Seen, most: int
    ) -> None:
        who = seen.who
        table = Table(self.asked, self.answered)
        if asked is not None:
            table.add(0, asked)
            if self.key in HEARTBEATS:
                add_subscription(table, asked, who)
        if answered is not None:
            table.add(1, answered)
            if self.key in HEARTBEATS:
                add_assignment(table, answered, who)
        several = self.first is not None and asked is not None and len(self.first.elements(asked)) > 1
        if table.topics:
            data |= table.tell(seen, most, None if self.key in HEARTBEATS else whole, several=several)
        data |= table.totals()


@cache
def exchange(key: int, version: int) -> Exchange:
    """Return the column extractor of an API and version, the same object each time.

    A version that the table lacks is only read where a broker lacks it, too, and answers as in version 0 (KIP-511).
    """
    return Exchange(key, version if version in schema.load(key).versions else 0)
