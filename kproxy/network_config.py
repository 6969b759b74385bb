"""Settings of how connections come in and go out: the PROXY protocol."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kproxy.rules.explain import Model
from kproxy.rules.match import Networks

ProxyVersion = Literal["v1", "v2"]
"""Of the header that kproxy sends: text, or binary."""


class ProxyProtocol(Model):
    """Who may say, in a PROXY header of version 1 or 2, whose connection it passes on."""

    from_: Networks = Field(
        alias="from",
        description="addresses or networks of load balancers, 10.0.0.0/8: each connection from there begins with a "
        "header. Those from elsewhere are clients themselves, and must not send one",
    )
