"""Responses in a broker's place, with errors for an entire request or for some of its entities. Pure functions.

`fail`: response to the entire request. `without`: the request with fewer entities, for the broker. `merge`: the
broker's response to it, with the errors of the others. `overwrite`: errors after the broker has done its work.
`leave_out`: removes denied entities from a list, in place. `errors_of`: the error of each entity in a response.
"""

from .error_responses import Failure, errors_of, fail, fail_each
from .merge import leave_out, merge, overwrite, overwrite_top, without

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
