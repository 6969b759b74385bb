"""Operations on the config: what is in force, what another one would change, and putting it in force.

A document in the body may name files and variables of the machine that kproxy runs on. So it is taken only where the
admin address asks for a token, and from whoever shows the one for changing things; without a body, kproxy reads its own
config file again.
"""

from __future__ import annotations

from json import JSONEncoder
from typing import TYPE_CHECKING, Any, Literal

import trio
from pydantic import Field
from starlette.responses import Response

from kproxy.base.errors import ConfigRefused
from kproxy.rules.values.source import Source
from kproxy.runtime.rules.keeper import DOCUMENTS

from .backend import Backend
from .guard import JSON
from .long_answer import CountedResponse, LongAnswer, room_for_answer
from .models import Shown
from .operation import Operation, OperationCall
from .problem import Problem
from .queries import Query

if TYPE_CHECKING:
    from kproxy.app.config.keeper import CheckedConfig, ConfigKeeper


class StepShown(Shown):
    """Step from the config in force to another one."""

    kind: Literal["added", "removed", "changed", "restart"] = Field(
        description="restart: it holds from a restart on, and is refused, or left as it is with except_restart"
    )
    name: str = Field(description="part of the config, such as listeners.outside")
    where: str = Field(description="file:line:column, the body is <api>; empty for what is not in the document")
    fields: list[str] = Field(description="settings of it that differ")
    effect: str = Field(description="what becomes of what is open, for people")


class ConfigChangeShown(Shown):
    """Steps to another config."""

    version: str = Field(description="of the config in force")
    steps: list[StepShown] = Field(description="empty: the document says what is in force")
    not_in_file: list[str] = Field(
        description="what is in force and came over this API, where kproxy's own config file says otherwise"
    )


class ConfigShown(Shown):
    """Config in force."""

    version: str = Field(description="the same for configs that say the same, secrets apart")
    origin: Literal["file", "api"] = Field(description="how it came in; what came over the API is gone after a restart")
    file: str | None = Field(description="config file of the start; null where kproxy was started with flags")
    not_in_file: list[str] = Field(description="places where that file says otherwise")
    applied: int = Field(description="how often the config was changed")
    rejected: int = Field(description="how often one was refused")
    config: dict[str, Any] = Field(description="with defaults and without secrets")


class ApplyQuery(Query):
    """Manner of applying a config."""

    except_restart: bool = Field(default=False, description="settings that need a restart stay as they are")
    allow_cluster_change: bool = Field(
        default=False, description="accept that listeners lead to another cluster, or to one with an unknown id"
    )


def keeper_of(backend: Backend) -> ConfigKeeper:
    """Return the keeper of the config. Raises ConfigRefused where it does not change."""
    if backend.configs is None:
        text = "this proxy is part of a program that has made its config, and it does not change while that runs"
        raise ConfigRefused("fixed_config", text)
    return backend.configs


def document_of(backend: Backend, call: OperationCall) -> Source | None:
    """Return the document in the body; None if there is no body, which stands for kproxy's own file: one with comments
    only is a document, of whoever meant to send a config. Raises ConfigRefused."""
    assert isinstance(call.body, Source), "the operation has such a body"
    if call.body.is_yaml and not call.body.has_text:
        return None
    if not call.may_write:
        raise Problem(403, "read_only", "the token is for reading, and a config in the body may name any file")
    if backend.tokens.full is None:
        text = "a config in the body may name any file of this machine, so it is taken only where the admin address "
        raise ConfigRefused("needs_token", f"{text}asks for a token; without a body kproxy reads its own file")
    return call.body


def show_change(keeper: ConfigKeeper, checked: CheckedConfig) -> LongAnswer:
    steps = (
        StepShown(kind=step.kind, name=step.name, where=at, fields=list(step.fields), effect=step.effect)
        for step, at in checked.steps
    )
    told = ConfigChangeShown(version=keeper.version, steps=[], not_in_file=checked.not_in_file)
    return LongAnswer(told, "steps", steps)


async def get_config(backend: Backend, call: OperationCall) -> Response:
    """Answer with what is in force; a config of thousands of listeners is written beside the loop."""
    keeper = keeper_of(backend)
    room_for_answer()
    told = ConfigShown(version=keeper.version, origin=keeper.came_by, file=keeper.file, not_in_file=[],
                       applied=keeper.applied, rejected=keeper.rejected, config={})  # fmt: skip
    config = keeper.config

    def written() -> bytes:
        whole = {**told.model_dump(mode="json"), "not_in_file": keeper.not_in_file(), "config": keeper.describe(config)}
        pieces = JSONEncoder(ensure_ascii=False, separators=(",", ":")).iterencode(whole)
        return "".join(pieces).encode()  # `json.dumps` lets nobody else run until it is through

    return CountedResponse(await trio.to_thread.run_sync(written, limiter=DOCUMENTS), media_type=JSON)


async def check_config(backend: Backend, call: OperationCall) -> LongAnswer:
    keeper = keeper_of(backend)
    return show_change(keeper, await keeper.check(document_of(backend, call)))


async def apply_config(backend: Backend, call: OperationCall) -> LongAnswer:
    """Answer when the config is in force; connections of what was removed may still end then."""
    keeper, document = keeper_of(backend), document_of(backend, call)
    came_by: Literal["file", "api"] = "file" if document is None else "api"
    checked = await keeper.apply(
        document, came_by=came_by, except_restart=call.query.except_restart,
        allow_cluster_change=call.query.allow_cluster_change, check=call.check,
    )  # fmt: skip
    return show_change(keeper, checked)


REFUSALS = ("invalid_document", "too_large", "needs_token", "no_config_file", "fixed_config", "too_many_answers")

OPERATIONS = (
    Operation("GET", "/api/config", "get_config", "The config in force, without secrets.", get_config, ConfigShown,
              refusals=("fixed_config", "too_many_answers")),
    Operation("POST", "/api/config/check", "check_config",
              "What another config, or without a body kproxy's own file, would change.",
              check_config, ConfigChangeShown, body="document", refusals=REFUSALS, changes=False),
    Operation("POST", "/api/config", "apply_config",
              "Put another config, or without a body kproxy's own file, in force: all of it or nothing.",
              apply_config, ConfigChangeShown, ApplyQuery, "document",
              refusals=(*REFUSALS, "needs_restart", "other_cluster", "unknown_cluster", "ending", "not_everywhere")),
)  # fmt: skip
