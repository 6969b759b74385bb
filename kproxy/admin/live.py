"""Runs the admin application on Hypercorn's trio worker, beside the reactor, until it is cancelled."""

from __future__ import annotations

from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette


async def serve_admin(
    app: Starlette, host: str, port: int, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serves until cancelled. Reports the URL once it listens. Raises OSError when the address cannot be bound."""
    config = Config()
    config.bind = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    config.accesslog = config.errorlog = None
    config.include_server_header = False
    config.graceful_timeout = 0.5
    async with trio.open_nursery() as nursery:
        urls: Any = await nursery.start(serve, app, config)
        task_status.started(urls[0])
