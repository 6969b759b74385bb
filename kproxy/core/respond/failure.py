"""An error as a response carries it."""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """Error of a response: its code, and the text that stands beside it where the version has a field for one.

    None becomes null there; clients have texts of their own.
    """

    code: int
    message: str | None = None
