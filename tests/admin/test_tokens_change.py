"""Requests that take their time while the tokens of the admin address change: what was shown at the beginning is looked
at again where they have waited, so that a token that is out of force changes nothing and shows nothing."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import AsyncGeneratorType
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kproxy.admin import rules as rule_operations
from kproxy.admin.api import OPERATIONS, make_app
from kproxy.admin.captures import PIECE, FileResponse
from kproxy.admin.guard import AdminTokens
from kproxy.admin.models import Shown
from kproxy.admin.operation import Operation, OperationCall
from kproxy.app.config.changes import FLAGS
from kproxy.app.config.document import Config
from kproxy.app.config.keeper import ConfigKeeper

from .conftest import CONFIG, Api

OLD, NEW, LOOK = "old", "new", "look"
WRITER = {"authorization": f"Bearer {OLD}"}
CHANGES = {
    "gone": (AdminTokens(NEW, LOOK), 401),
    "for reading": (AdminTokens(NEW, OLD), 403),
}
"""What becomes of the token that was shown, and what a change is answered then."""
WITH_BODY = [one for one in OPERATIONS if one.method in ("POST", "PUT")]
BODIES = {"rule": '{"kind": "tiny"}', "document": '{"rules": []}', "bytes": "no capture"}
OF_ONE = {
    "extend_held": '{"by": "60s"}',
    "claim_held": '{"who": "x"}',
    "resume_all_held": "{}",
    "send_exchange_again": "{}",
}
IN_TURN = {
    "put_rule": ("/api/rules/new", '{"kind": "tiny"}'),
    "add_rule": ("/api/rules/new", '{"kind": "tiny"}'),
    "replace_rules": ("/api/rules", '{"rules": [{"name": "new", "kind": "tiny"}]}'),
    "add_rules": ("/api/rules", '{"rules": [{"name": "new", "kind": "tiny"}]}'),
    "clear_rules": ("/api/rules", ""),
    "remove_rule": ("/api/rules/one", ""),
    "enable_rule": ("/api/rules/one/enable", ""),
    "disable_rule": ("/api/rules/one/disable", ""),
    "disable_faults": ("/api/faults/disable", ""),
    "enable_faults": ("/api/faults/enable", ""),
    "apply_config": ("/api/config", '{"limits": {"max_connections": 7}}'),
}
"""Operations that wait for changes that are under way."""
QUERIES = {"open_source": "?name=x", "start_capture": "?file=x.pcapng"}
AT_ONCE = {"reset_rules", "reset_rule", "resume_rule"}
"""Operations on rules that wait for nothing in a single process."""
BY_NAME = {one.name: one for one in OPERATIONS}


def asked_path(operation: Operation) -> str:
    return operation.path.replace("{name}", "one").replace("{id}", "1-1") + QUERIES.get(operation.name, "")


@pytest.fixture
def writing(make_api: Callable[..., Api]) -> Api:
    """With a rule that came over the API, and a config that may change."""
    made = make_api(token=OLD, read=LOOK)
    proxy = made.proxy
    proxy.configs = made.backend.configs = ConfigKeeper(
        Config.model_validate(CONFIG), FLAGS, proxy, proxy.keeper, proxy.files, proxy.log
    )
    return made


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda one: one.name)
@pytest.mark.trio
async def test_a_body_that_ends_after_its_token_changes_nothing(
    writing: Api, operation: Operation, change: str
) -> None:
    """The token is shown before the body, which may take ten seconds, and a file half an hour."""
    tokens, status = CHANGES[change]
    handled: list[OperationCall] = []

    async def handle(backend: Any, call: OperationCall) -> Any:
        handled.append(call)
        if call.receive is None:
            return Shown()
        return await operation.handle(backend, call)

    async def end_of_body() -> Any:
        writing.backend.tokens.use(tokens)
        return {"type": "http.request", "body": b"", "more_body": False}

    writing.app = make_app(writing.backend, "127.0.0.1", operations=[replace(operation, handle=handle)])
    body = OF_ONE.get(operation.name) or BODIES.get(str(operation.body), '{"revision": 1}')
    kind = "application/octet-stream" if operation.body == "bytes" else "application/json"
    answer = await writing(operation.method, asked_path(operation), body, kind=kind, pieces=len(body),
                           receive=end_of_body, **WRITER)  # fmt: skip

    if change == "gone" or operation.writes:
        assert answer.status == status, answer.body
        assert not handled or operation.body == "bytes"
    else:
        assert not handled[0].may_write
    assert not writing.backend.sources.by_id


def test_every_change_of_rules_is_here() -> None:
    of_rules = {one.name for one in rule_operations.OPERATIONS if one.writes}

    assert of_rules | {"apply_config"} == {*IN_TURN, *AT_ONCE}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", IN_TURN)
@pytest.mark.trio
async def test_who_waits_for_a_change_that_takes_its_token_changes_nothing(
    writing: Api, name: str, change: str
) -> None:
    """Such as another config with other tokens: changes are made one after the other."""
    tokens, status = CHANGES[change]
    keeper, configs = writing.proxy.keeper, writing.backend.configs
    assert configs is not None
    await writing("POST", "/api/rules/one", '{"kind": "tiny"}', **WRITER)
    before, path_and_body = keeper.store.rule_set.id, IN_TURN[name]
    body = path_and_body[1].replace("{", '{"clusters": {"main": {"bootstrap": ["127.0.0.1:9"]}}, "listeners": '
                                    '[{"name": "main", "bind": "127.0.0.1:0", "cluster": "main"}], ', 1) \
        if name == "apply_config" else path_and_body[1]  # fmt: skip
    answers = []

    async def ask() -> None:
        answers.append(await writing(BY_NAME[name].method, path_and_body[0], body or None, **WRITER))

    async with trio.open_nursery() as nursery, keeper.changing if name != "apply_config" else configs.changing:
        nursery.start_soon(ask)
        with trio.fail_after(60):
            while not (keeper.changing.statistics().tasks_waiting or configs.changing.statistics().tasks_waiting):
                await wait_all_tasks_blocked(0.001)
        writing.backend.tokens.use(tokens)

    assert [one.status for one in answers] == [status]
    assert (keeper.store.rule_set.id, keeper.store.faults_disabled, configs.applied) == (before, False, 0)


# ---- files


@pytest.fixture
def number(tmp_path: Path) -> int:
    """An open file of several pieces, to be sent."""
    path = tmp_path / "capture"
    path.write_bytes(bytes(3 * PIECE))
    return os.open(path, os.O_RDONLY)


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@pytest.mark.trio
async def test_a_download_ends_with_its_token(writing: Api, number: int) -> None:
    """Together with its connection, since its length was said; the file is closed."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("body"):
            writing.backend.tokens.use(AdminTokens(NEW))
            await trio.lowlevel.checkpoint()

    async def receive() -> Any:
        await trio.sleep_forever()

    response = FileResponse(writing.backend, number, 3 * PIECE, "c")
    scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "path": "/api/captures/c/file",
             "headers": [(b"authorization", f"Bearer {OLD}".encode())]}  # fmt: skip
    with trio.fail_after(60):
        await response(scope, receive, send)

    assert [one.get("more_body") for one in sent] == [None, True]
    assert not is_open(number)
    suspended = [one for one in gc.get_objects() if isinstance(one, AsyncGeneratorType) and one.ag_frame is not None]
    assert [one for one in suspended if "/kproxy/admin/" in one.ag_code.co_filename] == []  # no ResourceWarning later
    assert not writing.backend.tokens.streams


@pytest.mark.trio
async def test_a_file_that_may_not_be_sent_any_more_is_closed(writing: Api, number: int) -> None:
    """Its token changed between the request and the answer."""

    async def handle(backend: Any, call: OperationCall) -> Any:
        backend.tokens.use(AdminTokens(NEW))
        return FileResponse(backend, number, 3 * PIECE, "c")

    download = replace(BY_NAME["download_capture"], handle=handle)
    writing.app = make_app(writing.backend, "127.0.0.1", operations=[download])

    assert (await writing("GET", "/api/captures/c/file", **WRITER)).status == 401
    assert not is_open(number)
