"""Seeds of chances, wherever they are written: 64 bits, since worker processes are told of them in messages whose whole
numbers have no more."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

LEAST_SEED, LARGEST_SEED = -(2**63), 2**63 - 1


def checked_seed(number: int) -> int:
    """Return the number. Raises ValueError when it has more than 64 bits."""
    if not LEAST_SEED <= number <= LARGEST_SEED:
        raise ValueError(f"a number of at most 64 bits is wanted, {LEAST_SEED} to {LARGEST_SEED}, found {number}")
    return number


Seed = Annotated[int, AfterValidator(checked_seed)]
