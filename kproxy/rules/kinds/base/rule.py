"""The base class of all rules.

A kind is one file: a frozen model whose fields are its parameters and whose docstring begins with the sentence that
`kproxy kinds` shows, with its `group` and an `example`. Messages, schema, lists and reference page follow from the
model. How to write one: docs/develop/new-kind.md.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar, Final, Literal, get_args

from pydantic import AfterValidator, Field

from kproxy.rules.exchange import Facts
from kproxy.rules.select.match import ConnectionMatch
from kproxy.rules.values.model import Model

Group = Literal[
    "names",
    "addresses and versions",
    "access",
    "quotas",
    "errors and time",
    "connections and their bytes",
    "frames",
    "the cluster as clients see it",
    "groups, offsets and transactions",
    "records",
    "anything else",
]
"""Group of a kind, which the kind names; groups are listed in this order, and in each the kinds by their names."""
GROUPS: Final[tuple[Group, ...]] = get_args(Group)

_EXPLAINED: Final[dict[Group, str]] = {
    "names": "what clients call things, and what brokers do",
    "access": "who may do what",
    "frames": "lost, cut, spoiled, doubled",
}


def title(group: Group) -> str:
    """Return the group's name with its explanation, if it needs one: the line above its kinds."""
    return f"{group}: {_EXPLAINED[group]}" if group in _EXPLAINED else group


Scope = Literal["connection", "frame", "entity"]
Direction = Literal["request", "response"]
VisiblePart = Literal[
    "topic names", "topic ids", "group ids", "transactional ids", "broker addresses", "api versions", "client racks"
]

Family = Literal["names", "fault", "access", "quota", "code"]
"""Purpose of a rule: names, addresses and versions; faults, which the kill switch turns off; who may do what, and
how much of it; code of one's own."""
LONGEST_NAME = 200
"""Characters; a rule's name is a label of metrics and a column of tables."""


UNADDRESSABLE = (".", "..")
"""Names that no address can have in it: whoever makes a URL takes them for steps, `/api/rules/../reset` for
`/api/reset`, in any spelling."""


def _one_line(text: str) -> str:
    if text in UNADDRESSABLE:
        raise ValueError(f'a rule cannot be called "{text}", which the addresses of the admin API cannot have')
    if not text or len(text) > LONGEST_NAME or not text.isprintable():
        raise ValueError(f"a rule's name is one line of 1 to {LONGEST_NAME} characters, found {len(text)}")
    return text


RuleName = Annotated[str, AfterValidator(_one_line)]


class Rule(Model):
    """Base of all rules: a named entry under `rules:`."""

    group: ClassVar[Group] = "anything else"
    """The part of `kproxy kinds` in which it is listed, and its page of the documentation."""
    family: ClassVar[Family] = "names"
    scope: ClassVar[Scope] = "connection"
    """`connection`: it binds when one opens, and open ones keep what they have. `frame`, `entity`: what it acts on, at
    the next frame."""
    directions: ClassVar[tuple[Direction, ...]] = ("request", "response")
    needs: ClassVar[tuple[VisiblePart, ...]] = ()
    """Parts of frames that must be visible for it; the plan follows from that."""
    example: ClassVar[str]
    """YAML of one rule, checked by a test."""

    name: RuleName = Field(description="unique over all documents; appears in logs and metrics")
    kind: str = Field(description="what the rule does")
    match: ConnectionMatch | None = Field(
        default=None, description="connections that it is for; all of them if left out"
    )
    not_: ConnectionMatch | None = Field(default=None, alias="not", description="connections that it is not for")

    @cached_property
    def content(self) -> str:
        """Return the rule as text, which is the same for the same rules."""
        return self.model_dump_json(by_alias=True)

    def holds(self, facts: Facts) -> bool:
        """Return True if the rule is for such a connection."""
        wanted = self.match is None or self.match.holds(facts)
        return wanted and (self.not_ is None or not self.not_.holds(facts))

    def may_hold(self, listener: str, cluster: str) -> bool:
        """Return True if the rule can be for some connection on that listener."""
        return self.match is None or self.match.may_hold(listener, cluster)

    def always_holds(self, listener: str, cluster: str) -> bool:
        """Return True if this rule is for every connection on that listener."""
        wanted = self.match is None or self.match.always_holds(listener, cluster)
        return wanted and (self.not_ is None or not self.not_.may_hold(listener, cluster))

    @property
    def is_unconditional(self) -> bool:
        """Return True if the rule is for every connection."""
        return self.match is None and self.not_ is None
