"""The `view` section of the config: what those who look at the traffic over the admin address may see and do."""

from __future__ import annotations

from pydantic import Field

from kproxy.rules.values.model import Model
from kproxy.rules.values.quantities import ByteCount

LEAST_KEPT = 1 << 20
MOST_KEPT = 4 << 30


class ViewConfig(Model):
    """Settings of the live view, which shows what passes in a page and in a terminal."""

    enabled: bool = Field(default=True, description="whether the admin address serves the view at all")
    write: bool = Field(
        default=True, description="whether those who look may also hold, edit and answer; false: look only"
    )
    records: bool = Field(
        default=True,
        description="whether keys, values and headers of records are shown; false: nowhere in the view, nor searched",
    )
    always: bool = Field(
        default=False,
        description="whether every exchange is kept from the start, whatever that costs: for tests that ask afterwards "
        "what has passed",
    )
    kept: ByteCount = Field(
        default=64 << 20,
        ge=LEAST_KEPT,
        le=MOST_KEPT,
        description="bytes of frames that each process keeps while somebody looks, 64MiB if not given; of them at most "
        "20,000 exchanges",
    )
