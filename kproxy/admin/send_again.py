"""`POST /api/exchanges/{id}/send`: the request of an exchange that is kept, sent again by the process that kept it."""

from __future__ import annotations

from pydantic import BaseModel, Field

from .backend import Backend
from .exchange_models import SentAgainShown
from .exchanges import REFUSALS, live_member
from .held import check_view, worker_gone
from .operation import Operation, OperationCall
from .problem import Problem

LONGEST_NAME = 100
"""Characters of an API's name."""


class SendAgainBody(BaseModel, extra="forbid"):
    """Word of whoever sends a request again that it may change something."""

    confirm: str = Field(
        default="", max_length=LONGEST_NAME, description="its API, where the request changes something"
    )


async def send_again(backend: Backend, call: OperationCall) -> SentAgainShown:
    """Have the member that kept the exchange send its request again."""
    assert isinstance(call.body, SendAgainBody), "the table says so"
    check_view(backend, writes=True)
    member, number = live_member(backend, call.path["id"])
    try:
        shown = await member.send_again(number, call.body.confirm)
    except Problem as error:
        raise worker_gone(error) from None
    backend.log.info("exchange sent again", of=shown.again_of, exchange=shown.id, outcome=shown.outcome,
                     who=call.who or None)  # fmt: skip
    return shown


OPERATIONS = (
    Operation(
        "POST", "/api/exchanges/{id}/send", "send_exchange_again",
        "Send the request again, by the listener that it came by.", send_again, SentAgainShown, body=SendAgainBody,
        refusals=(*(one for one in REFUSALS if one not in ("no_such_source", "too_many_answers")), "not_sendable",
                  "cannot_log_in", "not_let_in", "confirm_first", "too_many_sent", "worker_gone", "invalid_body"),
    ),
)  # fmt: skip
