"""Answers in a broker's place: what it would send with an error, for all of a request or for some of its entities.

*fail*: the whole request · *without*: the request with fewer entities, for the broker · *merge*: the broker's response
to that, with the others' errors put in · *overwrite*: errors after the broker's work · *leave out*: what an answer to
"all" must not show · *errors*: what a response says of each entity.

Everything is a function of its arguments; what is handed in stays as it is, except for `leave_out`.
"""

from .answer import fail, fail_each
from .listing import leave_out
from .merge import merge, overwrite, overwrite_top, without
from .tree import Failure, errors_of

__all__ = [
    "Failure",
    "errors_of",
    "fail",
    "fail_each",
    "leave_out",
    "merge",
    "overwrite",
    "overwrite_top",
    "without",
]
